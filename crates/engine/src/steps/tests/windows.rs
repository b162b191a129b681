//! Steps with drafts: the tokens are those without, however many drafts are right.

use super::*;
use crate::DraftCounts;
use crate::fake::logprob;

fn rig(drafts: u32) -> Rig {
    Rig::new(ShapeLadder { drafts, ..ladder() }, Limits::default())
}

/// Tokens of a request, how it ended and what became of drafts.
type Told = (Vec<u32>, EndReason, DraftCounts);

async fn told(handle: &EngineHandle, job: GenerateJob) -> Told {
    let wanted = job.sampling.logprobs;
    let prompt_len = job.prompt.len();
    let mut stream = handle.generate(job).unwrap();
    let (mut all, mut counts) = (Vec::new(), DraftCounts::default());
    loop {
        match stream.next().await.expect("ended silently").unwrap() {
            GenerateEvent::Tokens { position, tokens, drafts } => {
                assert_eq!(position as usize, prompt_len + all.len());
                counts += drafts;
                for token in tokens {
                    if let Some(wanted) = wanted {
                        assert_eq!(
                            (token.top.len(), token.top[0]),
                            (wanted as usize, (token.id, token.logprob))
                        );
                        assert_eq!(token.logprob, logprob(token.id));
                    }
                    all.push(token.id);
                }
            }
            GenerateEvent::Ended { reason, .. } => return (all, reason, counts),
        }
    }
}

/// What a request is told when `pattern` says how many drafts are right and `count` tokens are drawn, the first by the
/// prefill.
fn counts(pattern: &[u32], drafts: u32, count: usize) -> DraftCounts {
    let (mut left, mut counts) = (count as u32 - 1, DraftCounts::default());
    for right in pattern.iter().cycle() {
        if left == 0 {
            break;
        }
        let right = (*right).min(drafts);
        counts += DraftCounts { verified: drafts, accepted: right.min(left) };
        left -= (right + 1).min(left);
    }
    counts
}

#[tokio::test]
async fn every_pattern_of_acceptance_draws_the_same_tokens() {
    for drafts in 1..=5 {
        let rig = rig(drafts);
        let handle = rig.handle();
        let mut patterns: Vec<Vec<u32>> = (0..=drafts).map(|right| vec![right]).collect();
        patterns.push((0..=drafts).collect());
        patterns.push((0..=drafts).rev().collect());
        let mut all = DraftCounts::default();
        for (at, pattern) in patterns.iter().enumerate() {
            rig.script.accept(pattern);
            // All places of an open pool, and none of it.
            for length in [1, 2, 3, 4, 5, 37] {
                let (prompt, mut sampling) = (prompt(length as u64, length), sampling(at as u64, 50));
                sampling.logprobs = (at % 2 == 0).then_some(3);
                let job = generate(&prompt, &sampling);
                let (tokens, reason, told) = told(&handle, job).await;
                assert_eq!(tokens, continuation(&prompt, &sampling, 50), "{length} tokens, {pattern:?}");
                assert_eq!(reason, EndReason::Length);
                assert_eq!(told, counts(pattern, drafts, 50), "{pattern:?}");
                all += told;
            }
        }
        rig.settle().await;
        let mut text = String::new();
        encode(&mut text, &rig.registry).unwrap();
        for line in [
            format!("tandem_mtp_drafted_tokens_total {}\n", all.verified),
            format!("tandem_mtp_accepted_tokens_total {}\n", all.accepted),
            format!("tandem_engine_decode_tokens_total {}\n", patterns.len() * 6 * 49),
        ] {
            assert!(text.contains(&line), "no {line} in {text}");
        }
    }
}

#[tokio::test]
async fn sequences_of_one_batch_accept_as_they_like() {
    let rig = rig(3);
    rig.script.accept(&[3, 0, 2, 1, 0]);
    let mut tasks = tokio::task::JoinSet::new();
    // More than the largest batch, so that windows wait a step or several.
    for seed in 0..11u64 {
        let handle = rig.handle();
        tasks.spawn(async move {
            let (prompt, sampling) = (prompt(seed, 3 + 5 * seed as usize), sampling(seed, 40 + seed as u32));
            let (tokens, ..) = told(&handle, generate(&prompt, &sampling)).await;
            assert_eq!(tokens, continuation(&prompt, &sampling, 40 + seed as usize));
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    rig.settle().await;
}

#[tokio::test]
async fn a_window_is_cut_where_the_answer_ends() {
    let rig = rig(3);
    let handle = rig.handle();
    rig.script.accept(&[3]);
    let prompt = prompt(3, 21);
    let all = continuation(&prompt, &sampling(5, 30), 30);
    for count in 1..12u32 {
        let (tokens, reason, ..) = told(&handle, generate(&prompt, &sampling(5, count))).await;
        assert_eq!((tokens.as_slice(), reason), (&all[..count as usize], EndReason::Length));
    }
    for at in 0..12 {
        let mut job = generate(&prompt, &sampling(5, 30));
        job.end_tokens = vec![all[at]];
        let at = all.iter().position(|token| *token == all[at]).unwrap();
        let (tokens, reason, told) = told(&handle, job).await;
        assert_eq!((tokens.as_slice(), reason), (&all[..=at], EndReason::EndToken(all[at])));
        assert_eq!(told, counts(&[3], 3, at + 1), "what comes after the end counts for nothing");
    }
    // Up to the last place of the context, while the window writes beyond it.
    let mut job = generate(&prompt, &sampling(5, 1));
    job.sampling.max_tokens = None;
    let (tokens, ..) = told(&handle, job.clone()).await;
    assert_eq!(tokens, continuation(&prompt, &job.sampling, 128 - 21));
    rig.settle().await;
}

#[tokio::test]
async fn pages_hold_the_drafts_beyond_the_end() {
    let rig = rig(3);
    let handle = rig.handle();
    // Pages of 8 tokens: 5 tokens and 3 drafts are one, 6 and 3 are two.
    for (tokens, pages) in [(5, 1), (6, 2), (128, 17)] {
        let reservation = handle.reserve(tokens).unwrap();
        assert_eq!(reservation.tokens(), tokens);
        assert_eq!(handle.load().free_pages, 64 - pages);
        drop(reservation);
        rig.settle().await;
    }
}

#[tokio::test]
async fn readers_that_leave_and_logits_that_are_not_finite() {
    let rig = rig(4);
    let handle = rig.handle();
    rig.script.accept(&[4, 1, 0]);
    rig.script.slow(Duration::from_millis(1));
    for events in 0..6 {
        let mut stream = handle.generate(generate(&prompt(3, 30), &sampling(3, 90))).unwrap();
        for _ in 0..events {
            stream.next().await.unwrap().unwrap();
        }
        drop(stream);
        let (prompt, sampling) = (prompt(events, 9), sampling(events, 20));
        let (tokens, ..) = told(&handle, generate(&prompt, &sampling)).await;
        assert_eq!(tokens, continuation(&prompt, &sampling, 20));
    }
    let (prompt, sampling) = (prompt(8, 8), sampling(8, 90));
    let mut stream = handle.generate(generate(&prompt, &sampling)).unwrap();
    let mut got = Vec::new();
    let error = loop {
        match stream.next().await.unwrap() {
            Ok(GenerateEvent::Tokens { tokens, .. }) => got.extend(tokens.into_iter().map(|token| token.id)),
            Ok(ended) => panic!("{ended:?}"),
            Err(error) => break error,
        }
        rig.script.corrupt_next_draw();
    };
    // What came before it stands.
    assert!(matches!(error, Error::NotFinite { position } if position as usize == 8 + got.len()), "{error}");
    assert_eq!(got, continuation(&prompt, &sampling, 90)[..got.len()]);
    rig.settle().await;
}
