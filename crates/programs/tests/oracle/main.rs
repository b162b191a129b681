//! Whole programs against `transformers`: the fixtures hold its float32 logits and greedy tokens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod machine;

use std::path::{Path, PathBuf};

use machine::{Machine, Sequence};
use programs::ShapeLadder;
use serde::Deserialize;

#[derive(Deserialize)]
struct Expected {
    prompts: Vec<Prompt>,
}

/// A prompt, the logits after its last token, and the greedy tokens that follow.
#[derive(Deserialize)]
struct Prompt {
    ids: Vec<i32>,
    logits: Vec<f64>,
    greedy: Vec<i32>,
}

/// Largest norm of the difference of logits over their norm.
const TOLERANCE: f64 = 2e-4;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/fixtures")
}

/// Shapes for ten prompts of up to 200 tokens and 64 more each; two slots are left for padded rows to miss.
fn ladder(chunks: &[u32], page_tokens: u32) -> ShapeLadder {
    let context: u32 = 320;
    let pages = 10 * context.div_ceil(page_tokens);
    ShapeLadder { chunks: chunks.to_vec(), batches: vec![12], context, page_tokens, pages, slots: 11 }
}

fn agrees_with_transformers(fixture: &str, ladder: &ShapeLadder) {
    let dir = fixtures().join(fixture);
    let text = std::fs::read_to_string(dir.join("expected.json")).unwrap();
    let expected: Expected = serde_json::from_str(&text).unwrap();
    let mut machine = Machine::new(&dir, ladder);
    let mut sequences = Vec::new();
    for (at, prompt) in expected.prompts.iter().enumerate() {
        let mut sequence = Sequence::new(ladder, at, prompt.ids.len());
        let (logits, first) = machine.prefill(&mut sequence, &prompt.ids);
        let off = distance(&logits, &prompt.logits);
        assert!(off < TOLERANCE, "{fixture}: {} tokens: logits differ by {off:.1e}", prompt.ids.len());
        assert_eq!(first, prompt.greedy[0]);
        sequence.tokens.push(first);
        sequences.push(sequence);
    }
    for _ in 1..expected.prompts[0].greedy.len() {
        let next = machine.decode(&sequences);
        sequences.iter_mut().zip(next).for_each(|(sequence, token)| sequence.tokens.push(token));
    }
    for (sequence, prompt) in sequences.iter().zip(&expected.prompts) {
        assert_eq!(sequence.tokens, prompt.greedy, "{fixture}: {} tokens", prompt.ids.len());
    }
}

fn distance(got: &[f32], wanted: &[f64]) -> f64 {
    assert_eq!(got.len(), wanted.len());
    let difference: f64 = got.iter().zip(wanted).map(|(&a, b)| (f64::from(a) - b).powi(2)).sum();
    (difference / wanted.iter().map(|x| x * x).sum::<f64>()).sqrt()
}

macro_rules! fixtures {
    ($($test:ident $name:literal: chunks $chunks:expr, pages of $page:literal;)+) => {$(
        #[test]
        fn $test() {
            agrees_with_transformers($name, &ladder(&$chunks, $page));
        }
    )+};
}

fixtures! {
    five_published "five-published": chunks [16, 64], pages of 16;
    five_saved "five-saved": chunks [40], pages of 7;
    five_module "five-module": chunks [200], pages of 64;
    folded "folded": chunks [96], pages of 8;
    no_shared "no-shared": chunks [32], pages of 32;
    wide_head "wide-head": chunks [128], pages of 16;
    strong_decay "strong-decay": chunks [80], pages of 16;
    no_decay "no-decay": chunks [100], pages of 5;
    query_rank "query-rank": chunks [64], pages of 320;
}
