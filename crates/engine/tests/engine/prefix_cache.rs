//! What is kept of prompts changes how much is computed, and no token.

use std::path::Path;

use engine::{CheckpointFormat, HashUnit, PrefixCache, SampledToken};
use programs::sampling::{Asked, Sampling};

use crate::demo::{self, demo};
use crate::hand_over::across;
use crate::rig::{Rig, greedy, ids, job, run_counted};

const UNIT: u32 = 64;

fn start(folder: &Path, drafts: u32, keeps: Option<CheckpointFormat>) -> Rig {
    let unit = HashUnit::new(UNIT).unwrap();
    demo::start(folder, drafts, keeps.map(|format| PrefixCache { format, ..PrefixCache::new(unit, 1 << 26) }))
}

/// Two conversations that begin alike, in turns that go on, are edited, asked again and are whole units long.
fn prompts(text: &[u32]) -> Vec<Vec<u32>> {
    let turn = |kept: usize, shift: usize, length: usize| {
        let mut all = text[..kept].to_vec();
        all.extend(text.iter().cycle().skip(kept + shift).take(length));
        all
    };
    vec![
        turn(0, 0, 150),
        turn(150, 0, 90),
        turn(0, 0, 256),
        turn(256, 0, 1),
        turn(200, 7, 200),
        turn(200, 7, 200),
        turn(200, 11, 312),
        turn(100, 3, 60),
        turn(130, 5, 500),
    ]
}

/// Text that the model was recorded with.
fn text_of(folder: &Path) -> Vec<u32> {
    demo::records(folder).into_iter().flat_map(|record| record.prompt_ids).take(800).collect()
}

fn samplings(vocabulary: u32) -> [Sampling; 2] {
    let asked = Asked {
        temperature: Some(0.8),
        repetition_penalty: Some(1.2),
        max_tokens: Some(20),
        logprobs: Some(5),
        ..Asked::default()
    };
    let mut greedy = greedy(20);
    greedy.logprobs = Some(5);
    [greedy, asked.checked(vocabulary, 9).unwrap()]
}

/// What checkpoints of a quarter of the bytes change.
#[derive(Debug, Default)]
struct Narrowly {
    /// Tokens before the first that differs.
    same: usize,
    all: usize,
    /// Of the first tokens' log-probabilities.
    largest: f32,
}

impl Narrowly {
    fn compare(&mut self, got: &[SampledToken], wanted: &[SampledToken]) {
        self.largest = self.largest.max((got[0].logprob - wanted[0].logprob).abs());
        self.all += wanted.len();
        self.same += got.iter().zip(wanted).take_while(|(got, wanted)| got.id == wanted.id).count();
    }
}

#[tokio::test]
async fn k3_demo_draws_the_same_warm_and_cold() {
    draws_the_same(&demo("k3-demo")).await;
}

#[tokio::test]
async fn glm_demo_draws_the_same_warm_and_cold() {
    draws_the_same(&demo("glm-demo")).await;
}

/// With and without drafts, in one engine and from one to another, cold and from what others left.
async fn draws_the_same(folder: &Path) {
    let f32 = Some(CheckpointFormat::F32);
    let engines = [(0, None), (3, None), (0, f32), (3, f32), (0, Some(CheckpointFormat::Int8))];
    let rigs = engines.map(|(drafts, keeps)| start(folder, drafts, keeps));
    let [cold, cold_drafting, warm, warm_drafting, narrow] = rigs.each_ref().map(Rig::handle);
    let text = text_of(folder);
    let mut largest = 0f32;
    let mut narrowly = Narrowly::default();
    let samplings = samplings(cold.facts().state.vocabulary as u32);
    for (at, (prompt, sampling)) in prompts(&text).into_iter().zip(samplings.iter().cycle()).enumerate() {
        let wanted = run_counted(&cold, job(&prompt, sampling.clone())).await.0;
        let drafting = run_counted(&cold_drafting, job(&prompt, sampling.clone())).await;
        for (handle, counts) in [(&warm, None), (&warm_drafting, Some(drafting.1))] {
            let (tokens, accepted) = run_counted(handle, job(&prompt, sampling.clone())).await;
            assert_eq!(ids(&tokens), ids(&wanted), "turn {at} of {}", folder.display());
            assert!(counts.is_none_or(|counts| counts == accepted), "turn {at}: {accepted:?}");
            let change = (tokens[0].logprob - wanted[0].logprob).abs();
            largest = largest.max(change / wanted[0].logprob.abs().max(1.0));
        }
        assert_eq!(ids(&drafting.0), ids(&wanted));
        narrowly.compare(&run_counted(&narrow, job(&prompt, sampling.clone())).await.0, &wanted);
        // One of them each turn: a hand-over costs as much as the answer.
        for (from, to) in [[(&warm, &cold)], [(&warm_drafting, &cold_drafting)]][at % 2] {
            let (tokens, _) = across(from, to, &prompt, sampling).await;
            assert_eq!(tokens, ids(&wanted), "turn {at}, moved");
        }
    }
    println!("{}: first log-probabilities within {largest:e}, {narrowly:?}", folder.display());
    assert!(largest < 1e-5, "{largest}");
    assert!(narrowly.largest < 0.05 && narrowly.same * 10 > narrowly.all * 9, "{narrowly:?}");
    for rig in &rigs[2..] {
        assert!(rig.counter("tandem_prefix_hit_tokens_total") > 1000);
    }
    for rig in rigs {
        rig.settle().await;
    }
}
