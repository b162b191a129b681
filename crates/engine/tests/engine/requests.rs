//! Requests in one process: alone, in company, and leaving early.

use std::time::Duration;

use engine::{EngineHandle, Role, SampledToken};
use programs::sampling::{Asked, Sampling};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;

use crate::rig::{Rig, config, greedy, ids, job, ladder, prompts, run};

const FIXTURE: &str = "five-published";

#[tokio::test]
async fn requests_get_their_own_tokens_whoever_comes_and_goes() {
    let rig = Rig::start(config(FIXTURE, Role::Both, ladder()));
    let handle = rig.handle();
    greedy_alone_and_in_company(&handle).await;
    rig.settle().await;
    sampled_alone_and_in_company(&handle).await;
    rig.settle().await;
    a_third_leaves_early(&handle).await;
    rig.settle().await;
}

async fn greedy_alone_and_in_company(handle: &EngineHandle) {
    let prompts = prompts(FIXTURE);
    for prompt in &prompts {
        let tokens = run(handle, job(&prompt.ids, greedy(prompt.greedy.len()))).await;
        assert_eq!(ids(&tokens), prompt.greedy, "{} tokens, alone", prompt.ids.len());
    }
    let mut rng = StdRng::seed_from_u64(3);
    let mut tasks = JoinSet::new();
    for turn in 0..3 * prompts.len() {
        let prompt = prompts[turn % prompts.len()].clone();
        let handle = handle.clone();
        let delay = Duration::from_millis(rng.random_range(0..200));
        let tokens = rng.random_range(1..=prompt.greedy.len());
        tasks.spawn(async move {
            tokio::time::sleep(delay).await;
            let got = run(&handle, job(&prompt.ids, greedy(tokens))).await;
            assert_eq!(ids(&got), prompt.greedy[..tokens], "{} tokens, in company", prompt.ids.len());
        });
    }
    finish(tasks).await;
}

/// Every way to sample, two of each.
pub(crate) fn samplings(vocabulary: u32) -> Vec<Sampling> {
    let plain = || Asked { temperature: Some(0.8), max_tokens: Some(24), ..Asked::default() };
    let asked = [
        plain(),
        Asked { top_k: Some(5), ..plain() },
        Asked { top_p: Some(0.7), logprobs: Some(3), ..plain() },
        Asked { min_p: Some(0.1), temperature: Some(1.5), ..plain() },
        Asked { repetition_penalty: Some(1.4), presence_penalty: Some(0.5), ..plain() },
        Asked { frequency_penalty: Some(1.0), temperature: Some(0.0), ..plain() },
        Asked { logit_bias: vec![(3, 4.0), (7, -100.0)], logprobs: Some(0), ..plain() },
    ];
    let seeded = (0..2).flat_map(|seed| asked.iter().map(move |asked| (seed, asked.clone())));
    seeded.map(|(seed, asked)| asked.checked(vocabulary, seed).unwrap()).collect()
}

async fn sampled_alone_and_in_company(handle: &EngineHandle) {
    let prompt = prompts(FIXTURE).into_iter().find(|prompt| prompt.ids.len() > 30).unwrap().ids;
    let samplings = samplings(handle.facts().state.vocabulary as u32);
    let mut alone = Vec::new();
    for sampling in &samplings {
        alone.push(run(handle, job(&prompt, sampling.clone())).await);
    }
    assert_ne!(ids(&alone[0]), ids(&alone[samplings.len() / 2]), "the seed changes nothing");
    assert!(alone.iter().all(|tokens| tokens.len() == 24));
    for (sampling, tokens) in samplings.iter().zip(&alone) {
        let listed = sampling.logprobs.map_or(0, |wanted| wanted as usize);
        assert!(tokens.iter().all(|token| token.top.len() == listed));
        assert!(tokens.iter().all(|token| (token.logprob < 0.0) == sampling.logprobs.is_some()));
        let biased_away = !sampling.logit_bias.is_empty();
        assert!(!biased_away || tokens.iter().all(|token| token.id != 7));
    }
    let mut tasks = JoinSet::new();
    for (at, sampling) in samplings.into_iter().enumerate() {
        let (handle, prompt, alone) = (handle.clone(), prompt.clone(), alone[at].clone());
        tasks.spawn(async move {
            tokio::time::sleep(Duration::from_millis(at as u64 * 7)).await;
            let together = run(&handle, job(&prompt, sampling)).await;
            assert_same(&together, &alone);
        });
    }
    finish(tasks).await;
}

/// The same tokens; log-probabilities may differ by the rounding of another batch size.
fn assert_same(got: &[SampledToken], wanted: &[SampledToken]) {
    assert_eq!(ids(got), ids(wanted));
    for (got, wanted) in got.iter().zip(wanted) {
        assert!((got.logprob - wanted.logprob).abs() < 1e-3, "{got:?} {wanted:?}");
        assert_eq!(got.top.len(), wanted.top.len());
    }
}

async fn a_third_leaves_early(handle: &EngineHandle) {
    let prompts = prompts(FIXTURE);
    let mut rng = StdRng::seed_from_u64(5);
    let mut tasks = JoinSet::new();
    for turn in 0..60 {
        let prompt = prompts[turn % prompts.len()].clone();
        let handle = handle.clone();
        let leaves_after = rng.random_bool(0.33).then(|| Duration::from_millis(rng.random_range(0..150)));
        tasks.spawn(async move {
            let count = 20.min(prompt.greedy.len());
            let whole = run(&handle, job(&prompt.ids, greedy(count)));
            match leaves_after {
                None => assert_eq!(ids(&whole.await), prompt.greedy[..count]),
                Some(after) => {
                    let _left = tokio::time::timeout(after, whole).await;
                }
            }
        });
    }
    finish(tasks).await;
}

async fn finish(mut tasks: JoinSet<()>) {
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}
