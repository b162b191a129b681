use pjrt::{Buffer, Executable};
use stablehlo::{DType, Module};

use super::{Rows, count, emit};
use crate::on_cpu;
use crate::sampling::noise::reference::threefry;
use crate::sampling::{MAX_LOGPROBS, REALS, SampleRow, Sampling, WORDS};
use reference::{Row, Verdict, draw};

mod reference;

/// A program that only draws, for `batch` rows over `vocabulary` tokens and `slots` slots.
struct Sampler {
    program: Executable,
    batch: usize,
    vocabulary: usize,
    slots: usize,
}

/// One row's part of what the program gives.
#[derive(Debug, Clone, PartialEq)]
struct Outcome {
    token: i32,
    logprob: f32,
    top_ids: Vec<i32>,
    top_logprobs: Vec<f32>,
}

impl Sampler {
    fn new(batch: usize, vocabulary: usize) -> Self {
        let slots = batch + 3;
        let module = Module::new("sampler");
        let f = module.main();
        let (b, v, s) = (batch as i64, vocabulary as i64, slots as i64);
        let rows = Rows {
            logits: f.input("logits", DType::F32.tensor([b, v])),
            positions: f.input("positions", DType::S32.tensor([b])),
            slots: f.input("slots", DType::S32.tensor([b])),
            words: f.input("words", DType::U32.tensor([b, WORDS as i64])),
            reals: f.input("reals", DType::F32.tensor([b, REALS as i64])),
            counts: f.input("counts", DType::S32.tensor([s, v])),
            seen: f.input("seen", DType::Pred.tensor([s, v])),
            bias: f.input("bias", DType::F32.tensor([s, v])),
        };
        let drawn = emit(&f, &rows);
        f.ret(&[
            ("tokens", drawn.tokens),
            ("chosen", drawn.chosen_logprob),
            ("ids", drawn.top_ids),
            ("top", drawn.top_logprobs),
        ]);
        Self { program: on_cpu::compile(&module.finish().unwrap().text), batch, vocabulary, slots }
    }

    /// Draws for `rows`, fewer than the batch leaving padding. Row i has slot `slots - 1 - i`; every place of the slot
    /// arrays that no row asked to be written holds rubbish.
    fn draw(&self, rows: &[Row]) -> Vec<Outcome> {
        let (b, v, s) = (self.batch, self.vocabulary, self.slots);
        let mut logits = vec![0.5f32; b * v];
        let mut positions = vec![0i32; b];
        let slots: Vec<i32> = (0..b).map(|row| (s - 1 - row) as i32).collect();
        let mut packed = vec![SampleRow::padding(); b];
        let (mut counts, mut seen) = (vec![77i32; s * v], vec![true; s * v]);
        let mut bias = vec![f32::NAN; s * v];
        for (at, row) in rows.iter().enumerate() {
            logits[at * v..][..v].copy_from_slice(&row.logits);
            positions[at] = row.position as i32;
            packed[at] = SampleRow::pack(&row.sampling);
            let own = slots[at] as usize * v;
            if row.sampling.needs_slot_rows() {
                counts[own..][..v].copy_from_slice(&row.counts);
                seen[own..][..v].copy_from_slice(&row.seen);
                bias[own..][..v].fill(0.0);
            }
            for &(token, value) in &row.sampling.logit_bias {
                bias[own + token as usize] = value;
            }
        }
        let words: Vec<u32> = packed.iter().flat_map(|row| row.words).collect();
        let reals: Vec<f32> = packed.iter().flat_map(|row| row.reals).collect();
        let arguments: [Buffer; 8] = [
            on_cpu::array(&logits, &[b, v]),
            on_cpu::array(&positions, &[b]),
            on_cpu::array(&slots, &[b]),
            on_cpu::array(&words, &[b, WORDS]),
            on_cpu::array(&reals, &[b, REALS]),
            on_cpu::array(&counts, &[s, v]),
            on_cpu::booleans(&seen, &[s, v]),
            on_cpu::array(&bias, &[s, v]),
        ];
        let outputs = self.program.execute(&arguments.iter().collect::<Vec<_>>()).unwrap();
        let tokens = outputs[0].to_vec::<i32>().unwrap();
        let chosen = outputs[1].to_vec::<f32>().unwrap();
        let ids = outputs[2].to_vec::<i32>().unwrap();
        let top = outputs[3].to_vec::<f32>().unwrap();
        let width = MAX_LOGPROBS as usize;
        (0..rows.len())
            .map(|row| Outcome {
                token: tokens[row],
                logprob: chosen[row],
                top_ids: ids[row * width..][..width].to_vec(),
                top_logprobs: top[row * width..][..width].to_vec(),
            })
            .collect()
    }
}

/// A source of numbers that a seed names.
struct Dice(u32, u32);

impl Dice {
    fn bits(&mut self) -> u32 {
        self.1 += 1;
        threefry([self.0, 17], [self.1, 0])[0]
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.bits() % bound
    }

    fn unit(&mut self) -> f32 {
        (self.bits() >> 8) as f32 / (1 << 24) as f32
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize].clone()
    }

    fn row(&mut self, vocabulary: usize) -> Row {
        // Whole numbers make ties, also at every cut.
        let whole = self.below(2) == 0;
        let logit = |dice: &mut Self| {
            let logit = (dice.unit() + dice.unit() - 1.0) * 8.0;
            if whole { logit.round() } else { logit }
        };
        let mut sampling = Sampling {
            temperature: self.pick(&[0.0, 0.0, 0.3, 1.0, 1.0, 2.5]),
            top_k: self.pick(&[0, 0, 1, 2, 5, 40, 5000]),
            top_p: self.pick(&[1.0, 1.0, 1e-6, 0.1, 0.5, 0.9, 0.999]),
            min_p: self.pick(&[0.0, 0.0, 0.05, 0.5, 1.0]),
            seed: u64::from(self.bits()) << 32 | u64::from(self.bits()),
            ..Sampling::default()
        };
        if self.below(2) == 0 {
            sampling.repetition_penalty = self.pick(&[1.0, 0.5, 1.3, 2.0]);
            sampling.presence_penalty = self.pick(&[0.0, -2.0, 0.7]);
            sampling.frequency_penalty = self.pick(&[0.0, -0.25, 1.5]);
        }
        if self.below(3) == 0 {
            let mut token = 0;
            for _ in 0..self.below(4) {
                token += 1 + self.below(vocabulary as u32 / 4 - 1);
                sampling.logit_bias.push((token, self.pick(&[-100.0, 100.0, 1.5, -0.5])));
            }
        }
        sampling.logprobs = self.pick(&[None, None, Some(0), Some(20)]);
        Row {
            sampling,
            logits: (0..vocabulary).map(|_| logit(self)).collect(),
            position: self.below(1 << 20),
            counts: (0..vocabulary).map(|_| self.pick(&[0, 0, 0, 1, 4])).collect(),
            seen: (0..vocabulary).map(|_| self.below(4) == 0).collect(),
        }
    }
}

#[test]
fn thousands_of_random_rows_draw_the_reference_s_tokens_whatever_the_batch() {
    let vocabulary = 97;
    let (large, small) = (Sampler::new(8, vocabulary), Sampler::new(2, vocabulary));
    let mut dice = Dice(1, 0);
    let (mut drawn, mut close) = (0, 0);
    for _ in 0..300 {
        let rows: Vec<Row> = (0..8).map(|_| dice.row(vocabulary)).collect();
        let outcomes = large.draw(&rows);
        for (row, outcome) in rows.iter().zip(&outcomes) {
            match draw(row) {
                Verdict::Close => close += 1,
                Verdict::Token(token) => assert_eq!(outcome.token, token, "{row:?}"),
            }
            drawn += 1;
            check_logprobs(row, outcome);
        }
        let alone = dice.below(8) as usize;
        assert_eq!(small.draw(&rows[alone..=alone])[0], outcomes[alone], "{:?}", rows[alone]);
    }
    assert!(close * 100 < drawn, "{close} of {drawn} are too close to tell");
}

fn check_logprobs(row: &Row, outcome: &Outcome) {
    let width = MAX_LOGPROBS as usize;
    if row.sampling.logprobs.is_none() {
        let silent = (outcome.logprob, &outcome.top_ids, &outcome.top_logprobs);
        assert_eq!(silent, (0.0, &vec![-1; width], &vec![0.0; width]));
        return;
    }
    let total: f64 = row.logits.iter().map(|&logit| f64::from(logit).exp()).sum();
    let mut ranked: Vec<usize> = (0..row.logits.len()).collect();
    ranked.sort_by(|&a, &b| row.logits[b].total_cmp(&row.logits[a]).then(a.cmp(&b)));
    let expected = |token: usize| f64::from(row.logits[token]) - total.ln();
    assert!((f64::from(outcome.logprob) - expected(outcome.token as usize)).abs() < 1e-4);
    for (place, &token) in ranked[..width].iter().enumerate() {
        let tied = row.logits[token] == 0.0;
        assert!(tied || outcome.top_ids[place] == token as i32, "place {place}: {outcome:?}");
        assert!((f64::from(outcome.top_logprobs[place]) - expected(token)).abs() < 1e-4);
    }
}

#[test]
fn frequencies_over_positions_are_the_probabilities() {
    let batch = 512;
    let sampler = Sampler::new(batch, 6);
    let logits = vec![2.0f32, 1.0, 0.0, -1.0, 1.5, -3.0];
    let temperature = 0.8;
    let sampling = Sampling { temperature, seed: 42, ..Sampling::default() };
    let mut seen = [0f64; 6];
    let calls = 40;
    for call in 0..calls {
        let rows: Vec<Row> = (0..batch)
            .map(|row| Row {
                sampling: sampling.clone(),
                logits: logits.clone(),
                position: (call * batch + row) as u32,
                counts: vec![0; 6],
                seen: vec![false; 6],
            })
            .collect();
        for outcome in sampler.draw(&rows) {
            seen[outcome.token as usize] += 1.0;
        }
    }
    let weights: Vec<f64> = logits.iter().map(|&logit| (f64::from(logit / temperature)).exp()).collect();
    let total: f64 = weights.iter().sum();
    let draws = (calls * batch) as f64;
    let distance: f64 = seen
        .iter()
        .zip(&weights)
        .map(|(seen, weight)| (seen - draws * weight / total).powi(2) / (draws * weight / total))
        .sum();
    // Chi-square with 5 degrees of freedom exceeds 20.5 once in a thousand.
    assert!(distance < 20.5, "chi-square {distance}: {seen:?}");
}

#[test]
fn a_corrupted_row_draws_no_token_and_its_mates_never_notice() {
    let sampler = Sampler::new(4, 97);
    let mut dice = Dice(2, 0);
    let sound: Vec<Row> = (0..4).map(|_| dice.row(97)).collect();
    let expected = sampler.draw(&sound);
    for (poison, temperature) in
        [(f32::NAN, 0.0), (f32::NAN, 1.0), (f32::INFINITY, 1.0), (f32::INFINITY, 0.0)]
    {
        let mut rows = sound.clone();
        rows[1].logits[5] = poison;
        rows[1].sampling = Sampling { temperature, ..Sampling::default() };
        let outcomes = sampler.draw(&rows);
        assert_eq!(outcomes[1].token, -1, "{poison} at temperature {temperature}");
        for mate in [0, 2, 3] {
            assert_eq!(outcomes[mate], expected[mate]);
        }
    }
}

#[test]
fn counts_grow_at_the_drawn_token_and_nowhere_else() {
    let module = Module::new("count");
    let f = module.main();
    let counts = f.input("counts", DType::S32.tensor([4, 5]));
    let slots = f.input("slots", DType::S32.tensor([4]));
    let tokens = f.input("tokens", DType::S32.tensor([4]));
    f.ret(&[("counts", count(&f, counts, slots, tokens))]);
    let before: Vec<i32> = (0..20).collect();
    let arguments = [
        on_cpu::array(&before, &[4, 5]),
        on_cpu::array(&[2i32, 0, 3, 3], &[4]),
        on_cpu::array(&[4i32, -1, 1, 1], &[4]),
    ];
    let outputs = on_cpu::run(&module.finish().unwrap().text, &arguments.iter().collect::<Vec<_>>());
    let mut expected = before;
    expected[2 * 5 + 4] += 1;
    expected[3 * 5 + 1] += 2;
    assert_eq!(outputs[0].to_vec::<i32>().unwrap(), expected);
}
