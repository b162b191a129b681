//! The draw of one row in plain Rust, in f64, with a sort where the program searches.

use crate::sampling::Sampling;
use crate::sampling::noise::reference::exponential;

/// What one row's draw reads.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) sampling: Sampling,
    pub(super) logits: Vec<f32>,
    pub(super) position: u32,
    pub(super) counts: Vec<i32>,
    pub(super) seen: Vec<bool>,
}

/// The drawn token, or that rounding decides between several.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    Token(i32),
    Close,
}

/// Two values nearer than this, relative to 1 or to the larger, may change places by rounding.
const CLOSE: f64 = 1e-5;

pub(super) fn draw(row: &Row) -> Verdict {
    let sampling = &row.sampling;
    let logits = adjusted(row);
    let mut ranked: Vec<usize> = (0..logits.len()).collect();
    ranked.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    if sampling.temperature == 0.0 {
        return winner(&logits, &ranked);
    }
    let peak = logits[ranked[0]];
    let weights: Vec<f64> =
        logits.iter().map(|logit| ((logit - peak) / f64::from(sampling.temperature)).exp()).collect();
    let tied = |a: usize, b: usize| logits[a] == logits[b];
    let mut kept = ranked.len();
    if sampling.top_k > 0 {
        kept = kept.min(sampling.top_k as usize);
    }
    while kept < ranked.len() && tied(ranked[kept - 1], ranked[kept]) {
        kept += 1;
    }
    let total: f64 = ranked[..kept].iter().map(|&token| weights[token]).sum();
    let mut close = false;
    if sampling.top_p < 1.0 {
        let wanted = f64::from(sampling.top_p) * total;
        let mut sum = 0.0;
        let mut nucleus = 0;
        while nucleus < kept && (nucleus == 0 || sum < wanted || tied(ranked[nucleus - 1], ranked[nucleus])) {
            sum += weights[ranked[nucleus]];
            close |= (sum / wanted - 1.0).abs() < CLOSE;
            nucleus += 1;
        }
        kept = nucleus;
    }
    let floor = f64::from(sampling.min_p);
    close |= floor > 0.0 && floor < 1.0 && weights.iter().any(|weight| (weight / floor - 1.0).abs() < CLOSE);
    let mut scores = vec![-1.0; weights.len()];
    for &token in ranked[..kept].iter().filter(|&&token| weights[token] >= floor) {
        scores[token] = weights[token] / exponential(sampling.seed, row.position, token as u32);
    }
    ranked.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
    if close { Verdict::Close } else { winner(&scores, &ranked) }
}

fn winner(scores: &[f64], ranked: &[usize]) -> Verdict {
    let (first, second) = (scores[ranked[0]], scores[ranked[1]]);
    let close = first != second && (first - second).abs() < CLOSE * first.abs().max(1e-3);
    if close { Verdict::Close } else { Verdict::Token(ranked[0] as i32) }
}

fn adjusted(row: &Row) -> Vec<f64> {
    let sampling = &row.sampling;
    let mut logits: Vec<f64> = row.logits.iter().map(|&logit| f64::from(logit)).collect();
    for &(token, bias) in &sampling.logit_bias {
        logits[token as usize] += f64::from(bias);
    }
    for (token, logit) in logits.iter_mut().enumerate() {
        let count = row.counts[token];
        let repetition = f64::from(sampling.repetition_penalty);
        if row.seen[token] || count > 0 {
            *logit = if *logit > 0.0 { *logit / repetition } else { *logit * repetition };
        }
        *logit -= f64::from(count) * f64::from(sampling.frequency_penalty);
        *logit -= if count > 0 { f64::from(sampling.presence_penalty) } else { 0.0 };
    }
    logits
}
