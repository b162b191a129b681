//! Whole programs against outside implementations: the fixtures hold their float32 logits, layers, drafts and greedy tokens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod drafts;
mod machine;
mod narrow;

use std::path::{Path, PathBuf};

use checkpoint::Wanted;
use machine::{Machine, Sequence, Setup};
use model::weights::Float;
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
    /// The last token's residual after each layer.
    layers: Option<Vec<Vec<f64>>>,
    /// How far the judge's own bf16 run is from its f32 run, in its worst logit.
    bf16_error: Option<f64>,
    mtp: Option<Drafting>,
}

/// What the draft layer makes of a prompt: its greedy drafts and their logits, one after another.
#[derive(Deserialize)]
struct Drafting {
    drafts: Vec<i32>,
    logits: Vec<Vec<f64>>,
}

/// Largest norm of a difference over the norm of what it should be.
const TOLERANCE: f64 = 2e-4;
/// Tokens that are drawn after each prompt.
const DRAWN: usize = 64;

fn fixture(name: &str) -> (PathBuf, Expected) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/fixtures").join(name);
    let text = std::fs::read_to_string(dir.join("expected.json")).unwrap();
    (dir, serde_json::from_str(&text).unwrap())
}

/// Shapes for prompts of these lengths at once and `drawn` tokens after each; two rows and a slot are left for padding to
/// miss.
fn ladder(prompts: &[usize], drawn: usize, chunks: &[u32], page_tokens: u32, drafts: u32) -> ShapeLadder {
    let count = prompts.len() as u32;
    let context = (prompts.iter().max().unwrap() + drawn) as u32;
    let mut ladder = ShapeLadder {
        chunks: chunks.to_vec(),
        batches: vec![count + 2],
        context,
        page_tokens,
        pages: 1,
        slots: count + 1,
        drafts,
        latents: Float::F32,
        lane: 16,
    };
    ladder.pages = count * ladder.pages_per_sequence();
    ladder
}

fn sequences(prompts: &[usize], ladder: &ShapeLadder) -> Vec<Sequence> {
    let each = prompts.iter().enumerate();
    each.map(|(at, &length)| Sequence::new(ladder, at, prompts.len(), length)).collect()
}

fn lengths(expected: &Expected) -> Vec<usize> {
    expected.prompts.iter().map(|prompt| prompt.ids.len()).collect()
}

/// Runs all prompts, then draws; every number is the judge's.
fn agrees(name: &str, chunks: &[u32], page_tokens: u32, drafts: u32, devices: usize) {
    let (dir, expected) = fixture(name);
    let ladder = ladder(&lengths(&expected), DRAWN, chunks, page_tokens, drafts);
    let wanted = Wanted { drafts: drafts > 0, ..Wanted::default() };
    let setup = Setup { wanted, more_devices: devices - 1, ..Setup::default() };
    let mut machine = Machine::new(&dir, &ladder, setup);
    let mut sequences = sequences(&lengths(&expected), &ladder);
    for (sequence, prompt) in sequences.iter_mut().zip(&expected.prompts) {
        let what = format!("{name}: {} tokens", prompt.ids.len());
        let got = machine.prefill(sequence, &prompt.ids);
        let layers = prompt.layers.iter().flatten();
        for (layer, (got, wanted)) in
            got.layers.chunks(got.layers.len() / layers.clone().count().max(1)).zip(layers).enumerate()
        {
            assert_close(&format!("{what}: layer {layer}"), got, wanted);
        }
        assert_close(&format!("{what}: logits"), &got.logits, &prompt.logits);
        assert_eq!(got.token, prompt.greedy[0], "{what}");
        sequence.tokens.push(got.token);
    }
    let shown = machine.decode(&mut sequences, &[]);
    for (prompt, shown) in expected.prompts.iter().zip(shown) {
        if drafts > 0
            && let Some(mtp) = &prompt.mtp
        {
            drafts_agree(&format!("{name}: {} tokens", prompt.ids.len()), mtp, &shown, drafts);
        }
    }
    while sequences.iter().any(|sequence| sequence.tokens.len() < DRAWN) {
        machine.decode(&mut sequences, &[]);
    }
    for (sequence, prompt) in sequences.iter().zip(&expected.prompts) {
        assert_eq!(sequence.tokens[..DRAWN], prompt.greedy, "{name}: {} tokens", prompt.ids.len());
    }
}

/// Drafts that hang on a near-tie before them are not compared.
fn drafts_agree(what: &str, mtp: &Drafting, shown: &[f32], drafts: u32) {
    let vocabulary = shown.len() / drafts as usize;
    for (at, (got, wanted)) in shown.chunks(vocabulary).zip(&mtp.logits).enumerate() {
        assert_close(&format!("{what}: draft {at}"), got, wanted);
        let best = (0..vocabulary).max_by(|&a, &b| got[a].total_cmp(&got[b])).unwrap();
        if best as i32 != mtp.drafts[at] {
            let gap = wanted[mtp.drafts[at] as usize] - wanted[best];
            assert!(gap < 1e-3, "{what}: draft {at} is {best}, should be {}", mtp.drafts[at]);
            return;
        }
    }
}

fn assert_close(what: &str, got: &[f32], wanted: &[f64]) {
    let off = distance(got, wanted);
    assert!(off < TOLERANCE, "{what}: differs by {off:.1e}");
}

fn distance(got: &[f32], wanted: &[f64]) -> f64 {
    assert_eq!(got.len(), wanted.len());
    let difference: f64 = got.iter().zip(wanted).map(|(&a, b)| (f64::from(a) - b).powi(2)).sum();
    (difference / wanted.iter().map(|x| x * x).sum::<f64>()).sqrt()
}

macro_rules! fixtures {
    ($($test:ident $name:literal: chunks $chunks:expr, pages of $page:literal, drafts $drafts:literal;)+) => {$(
        #[test]
        fn $test() {
            agrees($name, &$chunks, $page, $drafts, 1);
        }
    )+};
}

fixtures! {
    five_published "five-published": chunks [16, 64], pages of 16, drafts 0;
    five_saved "five-saved": chunks [40], pages of 7, drafts 0;
    five_module "five-module": chunks [200], pages of 64, drafts 0;
    folded "folded": chunks [96], pages of 8, drafts 0;
    no_shared "no-shared": chunks [32], pages of 32, drafts 0;
    wide_head "wide-head": chunks [128], pages of 16, drafts 0;
    strong_decay "strong-decay": chunks [80], pages of 16, drafts 0;
    no_decay "no-decay": chunks [100], pages of 5, drafts 0;
    query_rank "query-rank": chunks [64], pages of 320, drafts 0;
    k3_1_drafting "k3-1": chunks [48, 128], pages of 16, drafts 3;
    k3_2_drafting "k3-2": chunks [64], pages of 32, drafts 3;
    k3_3_drafting "k3-3": chunks [80], pages of 16, drafts 4;
    k3_4_drafting "k3-4": chunks [100], pages of 24, drafts 3;
    k3_5_drafting "k3-5": chunks [16, 160], pages of 64, drafts 3;
    k3_mxfp4 "k3-mxfp4": chunks [128], pages of 16, drafts 0;
    glm_1_drafting "glm-1": chunks [16, 50], pages of 32, drafts 3;
    glm_2_drafting "glm-2": chunks [64], pages of 16, drafts 3;
    glm_3_drafting "glm-3": chunks [33], pages of 8, drafts 4;
    glm_4_drafting "glm-4": chunks [96], pages of 64, drafts 3;
    glm_5_drafting "glm-5": chunks [27, 150], pages of 20, drafts 3;
    glm_fp8 "glm-fp8": chunks [128], pages of 16, drafts 0;
}

#[test]
fn k3_over_two_devices() {
    agrees("k3-2", &[128], 16, 3, 2);
}

#[test]
fn glm_over_four_devices_is_what_it_is_on_one() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/glm-demo");
    let prompts = [5, 300];
    let ladder = ladder(&prompts, 12, &[128], 16, 2);
    let wanted = Wanted::default();
    let [one, four] = [0, 3].map(|more_devices| {
        let mut machine = Machine::new(&dir, &ladder, Setup { wanted, more_devices, ..Setup::default() });
        let mut all = sequences(&prompts, &ladder);
        let mut logits = Vec::new();
        for (sequence, length) in all.iter_mut().zip(prompts) {
            let prompt: Vec<i32> = (0..length as i32).map(|at| 3 + at * 37 % 2000).collect();
            let got = machine.prefill(sequence, &prompt);
            logits.push(got.logits.iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
            sequence.tokens.push(got.token);
        }
        for _ in 0..4 {
            machine.decode(&mut all, &[]);
        }
        (logits, all.into_iter().map(|sequence| sequence.tokens).collect::<Vec<_>>())
    });
    for (one, four) in one.0.iter().zip(&four.0) {
        let four: Vec<f32> = four.iter().map(|&x| x as f32).collect();
        assert_close("logits", &four, one);
    }
    assert_eq!(one.1, four.1);
}
