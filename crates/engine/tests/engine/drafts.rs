//! Drafts change how many steps an answer takes, and no token of it.

use std::path::{Path, PathBuf};

use engine::{DraftCounts, EngineConfig, EngineHandle, Error, Role};
use programs::ShapeLadder;
use programs::sampling::{Asked, Sampling};
use programs::weights::Float;

use crate::demo::{self, demo};
use crate::hand_over::across;
use crate::rig::{Rig, config, fixture, greedy, ids, job, ladder, prompts, run_counted, start_error};

fn with_drafts(model_dir: PathBuf, drafts: Option<u32>, ladder: ShapeLadder) -> EngineConfig {
    EngineConfig { model_dir, drafts, ..config("", Role::Both, ladder) }
}

fn small() -> ShapeLadder {
    ShapeLadder { chunks: vec![32], batches: vec![2], context: 400, pages: 60, slots: 3, ..ladder() }
}

/// Greedy, and two ways to sample.
fn samplings(vocabulary: u32) -> Vec<Sampling> {
    let asked = Asked { temperature: Some(0.8), max_tokens: Some(40), ..Asked::default() };
    let penalised = Asked { repetition_penalty: Some(1.3), frequency_penalty: Some(0.5), ..asked.clone() };
    let sampled = [asked, penalised].map(|asked| asked.checked(vocabulary, 7).unwrap());
    [greedy(40)].into_iter().chain(sampled).collect()
}

/// Runs prompts, each in another way, with and without drafts; drafts verified and drafts accepted.
async fn compare(without: &EngineHandle, with: &EngineHandle, prompts: &[Vec<u32>]) -> (u32, u32) {
    let (mut all_drafted, mut all_accepted) = (0, 0);
    let samplings = samplings(without.facts().state.vocabulary as u32);
    for (prompt, sampling) in prompts.iter().zip(samplings.iter().cycle().cloned()) {
        let (tokens, counts) = run_counted(without, job(prompt, sampling.clone())).await;
        assert_eq!(counts, DraftCounts::default());
        let (same, counts) = run_counted(with, job(prompt, sampling)).await;
        assert_eq!(ids(&same), ids(&tokens), "{} tokens", prompt.len());
        assert!(counts.accepted <= counts.verified);
        // The first token is the prompt's, and every step draws one that is no draft.
        let steps = counts.verified / with.facts().ladder.drafts;
        assert!(steps + counts.accepted >= tokens.len() as u32 - 1);
        all_drafted += counts.verified;
        all_accepted += counts.accepted;
    }
    (all_drafted, all_accepted)
}

/// What the judge writes without drafts, in one engine and from one to another, with pages of another length there.
async fn draws_the_same(name: &str, page_tokens: u32) {
    let with = Rig::start(with_drafts(fixture(name), None, small()));
    let other = ShapeLadder { chunks: vec![24], page_tokens, pages: 90, slots: 5, ..small() };
    let receiver = EngineConfig { role: Role::Decode, ..with_drafts(fixture(name), Some(3), other) };
    let receiver = Rig::start(receiver);
    assert_eq!(with.handle().facts().ladder.drafts, 3, "the model has a draft layer");
    for prompt in prompts(name) {
        let sampling = greedy(prompt.greedy.len());
        let one = run_counted(&with.handle(), job(&prompt.ids, sampling.clone())).await;
        let (tokens, counts) = (ids(&one.0), one.1);
        assert_eq!(tokens, prompt.greedy, "{name}: {} tokens", prompt.ids.len());
        // Equal counts: nothing that drafts read is lost on the way.
        let moved = across(&with.handle(), &receiver.handle(), &prompt.ids, &sampling).await;
        assert_eq!(moved, (tokens, counts), "{name}: {} tokens, moved", prompt.ids.len());
    }
    for rig in [with, receiver] {
        rig.settle().await;
    }
}

#[tokio::test]
async fn k3_draws_the_same_with_drafts() {
    draws_the_same("k3-1", 7).await;
}

#[tokio::test]
async fn glm_draws_the_same_with_drafts() {
    draws_the_same("glm-1", 12).await;
}

#[tokio::test]
async fn k3_demo_draws_the_same_with_drafts_and_accepts_some() {
    accepts_some(&demo("k3-demo")).await;
}

#[tokio::test]
async fn glm_demo_draws_the_same_with_drafts_and_accepts_some() {
    accepts_some(&demo("glm-demo")).await;
}

async fn accepts_some(folder: &Path) {
    let [without, with] = [0, 3].map(|drafts| demo::start(folder, drafts, None));
    assert_eq!(without.handle().facts().state.hidden, None);
    // Text of the model's own.
    let sampling = Asked { temperature: Some(0.8), max_tokens: Some(100), ..Asked::default() };
    let sampling = sampling.checked(without.handle().facts().state.vocabulary as u32, 5).unwrap();
    let (text, _) = run_counted(&without.handle(), job(&[300, 301, 302], sampling)).await;
    let text = ids(&text);
    let prompts: Vec<Vec<u32>> =
        [1, 2, 3, 4, 5, 100].iter().map(|&length| text[..length.min(text.len())].to_vec()).collect();
    let (drafted, accepted) = compare(&without.handle(), &with.handle(), &prompts).await;
    println!("{}: {accepted} of {drafted} drafts accepted", folder.display());
    assert!(accepted * 10 > drafted, "{accepted} of {drafted} drafts accepted");
    without.settle().await;
    with.settle().await;
}

#[tokio::test]
async fn narrow_formats_draw_nearly_the_same() {
    let narrow =
        EngineConfig { float: Float::Bf16, int8: true, ..with_drafts(fixture("k3-1"), None, small()) };
    let rig = Rig::start(narrow);
    assert_eq!(rig.handle().facts().ladder.latents, Float::Bf16);
    let (mut same, mut all) = (0, 0);
    for prompt in prompts("k3-1") {
        let (tokens, _) = run_counted(&rig.handle(), job(&prompt.ids, greedy(4))).await;
        assert_eq!(tokens.len(), 4);
        all += 1;
        same += usize::from(tokens[0].id == prompt.greedy[0]);
    }
    assert!(same * 2 > all, "{same} of {all} first tokens are those of float32");
    rig.settle().await;
}

#[test]
fn drafts_need_a_draft_layer() {
    let error = start_error(with_drafts(fixture("five-saved"), Some(2), ladder()));
    assert!(matches!(error, Error::Programs(_)), "{error}");
    assert_eq!(error.to_string(), "shape ladder: drafts: the model has no draft layer");
    let error = start_error(with_drafts(fixture("k3-1"), Some(6), ladder()));
    assert_eq!(error.to_string(), "shape ladder: drafts: must be at most 5");
    let odd = ShapeLadder { page_tokens: 18, ..ladder() };
    let error = start_error(with_drafts(fixture("glm-1"), None, odd));
    assert!(error.to_string().starts_with("shape ladder: page_tokens: must be a multiple of"), "{error}");
}
