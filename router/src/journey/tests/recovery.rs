//! No request fails because a worker died: what its client sees is what it would have seen.

use super::*;
use crate::test_cluster::{PATIENT, Script};

/// Everything that a cut could change: a seed, penalties, log probabilities.
fn sampled(tokens: i64) -> Asked {
    let mut asked = asked(tokens);
    let sampling = &mut asked.sampling;
    (sampling.temperature, sampling.seed, sampling.logprobs) = (Some(0.9), Some(11), Some(1));
    (sampling.repetition_penalty, sampling.frequency_penalty) = (Some(1.2), Some(0.5));
    asked
}

/// All but the times and the cuts between deltas.
#[derive(Debug, PartialEq)]
struct Seen {
    ids: Vec<u32>,
    text: String,
    logprobs: Vec<u32>,
    finish: (FinishReason, String),
    usage: (u32, u32, u32),
}

fn seen(deltas: &[GenerateResponse]) -> Seen {
    for (sequence, delta) in (0..).zip(deltas) {
        assert_eq!(delta.sequence, sequence);
    }
    let last = deltas.last().unwrap();
    let (finish, usage) = (last.finish.as_ref().unwrap(), last.usage.unwrap());
    let entries = deltas.iter().flat_map(|delta| &delta.logprobs);
    Seen {
        ids: deltas.iter().flat_map(|delta| delta.token_ids.clone()).collect(),
        text: text(deltas),
        logprobs: entries.map(|entry| entry.chosen.as_ref().unwrap().token_id).collect(),
        finish: (finish.reason(), finish.stop_sequence.clone()),
        usage: (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens),
    }
}

fn migrations(deltas: &[GenerateResponse]) -> u32 {
    deltas.last().unwrap().timing.as_ref().unwrap().migrations
}

#[tokio::test]
async fn a_death_at_any_stage_changes_nothing() {
    let cluster = Cluster::start(CONFIG, 2, 2).await;
    cluster.says(Script::Keyed);
    for request in [asked(8), sampled(8)] {
        let right = seen(&answer(&cluster.router, request.clone()).await.unwrap());
        assert_eq!(right.logprobs.len(), if request.sampling.logprobs.is_some() { 8 } else { 0 });
        for (worker, ill, migrated) in [
            ("d0", Ill::Unreachable, 1),
            ("d0", Ill::DiesReserved, 1),
            ("p0", Ill::DiesReserved, 1),
            // before the first chunk, after it, and with the first token told but its state not handed over
            ("p0", Ill::Breaks(0), 1),
            ("p0", Ill::Breaks(1), 1),
            ("p0", Ill::Silent(2), 1),
            // before the commit is told, after it, amid the tokens, and with all of them told but not the end
            ("d0", Ill::Breaks(0), 1),
            ("d0", Ill::Breaks(1), 1),
            ("d0", Ill::Breaks(5), 1),
            ("d0", Ill::Breaks(8), 0),
            ("d0", Ill::Says(4, ErrorReason::WorkerLost), 1),
            ("d0", Ill::Says(0, ErrorReason::LeaseExpired), 1),
            ("p0", Ill::Says(2, ErrorReason::TransferFailed), 1),
        ] {
            cluster.falls_ill(worker, ill);
            let deltas = answer(&cluster.router, request.clone()).await;
            let deltas = deltas.unwrap_or_else(|error| panic!("{worker} {ill:?}: {error}"));
            assert_eq!(seen(&deltas), right, "{worker} {ill:?}");
            assert_eq!(migrations(&deltas), migrated, "{worker} {ill:?}");
            cluster.falls_ill(worker, Ill::Not);
        }
    }
    cluster.all_is_free().await;
}

#[tokio::test]
async fn prefill_is_given_the_output_as_output() {
    let cluster = Cluster::start(CONFIG, 1, 2).await;
    cluster.falls_ill("d0", Ill::Breaks(3));
    answer(&cluster.router, sampled(8)).await.unwrap();
    let asked = cluster.prefilled();
    let [first, second] = &asked[..] else { panic!("{asked:?}") };
    let prompt = b"hello".map(u32::from);
    assert_eq!((first.attempt, first.output_tokens, &first.prompt_ids[..]), (1, 0, &prompt[..]));
    assert_eq!((second.attempt, second.output_tokens), (2, 3));
    assert_eq!(second.prompt_ids, [&prompt[..], &b"abc".map(u32::from)].concat());
    let (before, after) = (first.sampling.clone().unwrap(), second.sampling.clone().unwrap());
    assert_eq!((before.max_tokens, after.max_tokens), (Some(8), Some(5)));
    assert_eq!(proto::v1::Sampling { max_tokens: Some(8), ..after }, before, "seed and all");
    let tickets = asked.iter().map(|request| request.ticket.as_ref().unwrap().id.clone());
    assert_eq!(tickets.collect::<std::collections::HashSet<_>>().len(), 2, "no ticket is used twice");
    cluster.all_is_free().await;
}

#[tokio::test]
async fn text_is_whole_across_cuts() {
    let cluster = Cluster::start(CONFIG, 1, 3).await;
    cluster.says(Script::Said("xéSTOP!".bytes().map(u32::from).collect()));
    let mut request = asked(9);
    request.sampling.stop = vec!["STOP".to_owned()];
    let right = seen(&answer(&cluster.router, request.clone()).await.unwrap());
    assert_eq!((right.text.as_str(), right.finish.1.as_str()), ("xé", "STOP"));
    // the first cut goes through the character, the second through the stop string
    cluster.falls_ill("d0", Ill::Breaks(2));
    cluster.falls_ill("d1", Ill::Breaks(3));
    let deltas = answer(&cluster.router, request).await.unwrap();
    assert_eq!((seen(&deltas), migrations(&deltas)), (right, 2));
    cluster.all_is_free().await;
}

#[tokio::test]
async fn when_all_are_dead_the_first_to_come_back_goes_on() {
    let cluster = Cluster::start(PATIENT, 1, 2).await;
    cluster.says(Script::Keyed);
    let right = seen(&answer(&cluster.router, sampled(8)).await.unwrap());
    cluster.falls_ill("d0", Ill::Breaks(3));
    cluster.falls_ill("d1", Ill::Breaks(2));
    let come_back = async {
        cluster.migrated(2).await;
        cluster.restarts("d1");
        cluster.joins("d1");
    };
    let (deltas, ()) = tokio::join!(answer(&cluster.router, sampled(8)), come_back);
    let deltas = deltas.unwrap();
    assert_eq!((seen(&deltas), migrations(&deltas)), (right, 2));

    // one that came just now waits as well
    cluster.leaves("d0");
    cluster.leaves("d1");
    let come_back = async {
        tokio::time::sleep(Duration::from_millis(80)).await;
        cluster.joins("d1");
    };
    let (deltas, ()) = tokio::join!(answer(&cluster.router, asked(4)), come_back);
    assert_eq!(migrations(&deltas.unwrap()), 0);
    cluster.all_is_free().await;
}

#[tokio::test]
async fn one_that_has_restarted_is_not_taken_for_what_it_was() {
    let cluster = Cluster::start(CONFIG, 1, 2).await;
    cluster.restarts("d0");
    let deltas = answer(&cluster.router, asked(4)).await.unwrap();
    assert_eq!((text(&deltas).as_str(), migrations(&deltas)), ("abcd", 1));
    cluster.joins("d0");
    let deltas = answer(&cluster.router, asked(4)).await.unwrap();
    assert_eq!(deltas.last().unwrap().timing.as_ref().unwrap().decode_worker, "d0");
    cluster.all_is_free().await;
}

#[tokio::test]
async fn a_deadly_request_leaves_workers_for_others() {
    let cluster = Cluster::start(CONFIG, 1, 6).await;
    for index in 0..6 {
        cluster.falls_ill(&format!("d{index}"), Ill::Breaks(2));
    }
    // whoever dies under it is no member any more
    let dies = async {
        for died in 0..4_u64 {
            cluster.migrated(died + 1).await;
            cluster.leaves(&format!("d{died}"));
        }
    };
    let deadly = tokio::select! {
        deadly = answer(&cluster.router, asked(20)) => deadly.unwrap_err(),
        () = dies => panic!("placed again after four deaths"),
    };
    assert!(matches!(deadly, Error::Deadly { losses: 4, .. }), "{deadly}");
    assert_eq!(cluster.prefilled().len(), 4);
    cluster.all_is_free().await;
}

#[tokio::test]
async fn streams_go_on_without_their_workers_membership() {
    let cluster = Cluster::start(CONFIG, 1, 1).await;
    let arrival = cluster.router.arrival(Span::none(), Client::Anyone, None);
    let mut tokens = cluster.router.generate(asked(20), arrival).await.unwrap();
    let mut deltas = vec![tokens.next().await.unwrap().unwrap()];
    cluster.leaves("p0");
    cluster.leaves("d0");
    while let Some(delta) = tokens.next().await {
        deltas.push(delta.unwrap());
    }
    assert_eq!((text(&deltas).len(), migrations(&deltas)), (20, 0));
    cluster.all_is_free().await;
}

#[tokio::test]
async fn a_client_may_leave_or_wait_while_workers_are_found() {
    let cluster = Cluster::start(PATIENT, 1, 1).await;
    let cut = async |allowed| {
        cluster.falls_ill("d0", Ill::Breaks(3));
        let failed = cluster.router.metrics.migrations.get();
        let arrival = cluster.router.arrival(Span::none(), Client::Anyone, Some(allowed));
        let mut tokens = cluster.router.generate(asked(8), arrival).await.unwrap();
        let mut deltas = Vec::new();
        while cluster.router.metrics.migrations.get() == failed {
            if let Ok(delta) = tokio::time::timeout(Duration::from_millis(5), tokens.next()).await {
                deltas.push(delta.unwrap().unwrap());
            }
        }
        (tokens, deltas)
    };
    let long = Duration::from_secs(60);
    drop(cut(long).await);
    cluster.all_is_free().await;

    // a call of `next` that was given up loses nothing
    let (mut tokens, mut deltas) = cut(long).await;
    cluster.restarts("d0");
    cluster.joins("d0");
    while let Some(delta) = tokens.next().await {
        deltas.push(delta.unwrap());
    }
    assert_eq!((seen(&deltas).text.as_str(), migrations(&deltas)), ("abcdefgh", 1));

    // one that never asks again is cut off at its deadline, also while it has workers again
    let (mut tokens, _) = cut(Duration::from_secs(2)).await;
    cluster.restarts("d0");
    cluster.joins("d0");
    tokio::time::sleep(Duration::from_secs(2)).await;
    cluster.all_is_free().await;
    let late = tokens.next().await.unwrap().unwrap_err();
    assert_eq!(reason(&late), ErrorReason::Deadline, "{late}");
    assert!(tokens.next().await.is_none());
}
