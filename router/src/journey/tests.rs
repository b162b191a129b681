use std::time::Duration;

use proto::v1::{ErrorReason, FinishReason, GenerateResponse};
use tracing::Span;

use super::{Config, Router};
use crate::clients::Client;
use crate::test_cluster::{CONFIG, Cluster, Ill};
use crate::{Asked, Bounds, Error, Limits, Prompt};

mod clients;
mod recovery;

fn asked(tokens: i64) -> Asked {
    let mut asked =
        Asked { model: "demo".to_owned(), prompt: Prompt::Text("hello".to_owned()), ..Asked::default() };
    asked.sampling.max_tokens = Some(tokens);
    asked
}

async fn answer(router: &Router, asked: Asked) -> Result<Vec<GenerateResponse>, Error> {
    let arrival = router.arrival(Span::none(), Client::Anyone, None);
    let mut tokens = router.generate(asked, arrival).await?;
    let mut deltas = Vec::new();
    while let Some(delta) = tokens.next().await {
        deltas.push(delta?);
    }
    Ok(deltas)
}

fn text(deltas: &[GenerateResponse]) -> String {
    deltas.iter().map(|delta| delta.text.as_str()).collect()
}

fn reason(error: &Error) -> ErrorReason {
    error.fault().reason
}

#[tokio::test]
async fn a_request_is_answered_and_leaves_nothing_behind() {
    let cluster = Cluster::start(CONFIG, 1, 1).await;
    let deltas = answer(&cluster.router, asked(5)).await.unwrap();
    assert_eq!(text(&deltas), "abcde");
    let sequence: Vec<u64> = deltas.iter().map(|delta| delta.sequence).collect();
    assert_eq!(sequence, (0..deltas.len() as u64).collect::<Vec<_>>());
    let ids: Vec<u32> = deltas.iter().flat_map(|delta| delta.token_ids.clone()).collect();
    assert_eq!(ids, (97..102).collect::<Vec<u32>>());
    let last = deltas.last().unwrap();
    assert_eq!(last.finish.as_ref().unwrap().reason(), FinishReason::Length);
    let usage = last.usage.unwrap();
    assert_eq!((usage.prompt_tokens, usage.completion_tokens), (5, 5));
    let timing = last.timing.as_ref().unwrap();
    assert_eq!((timing.prefill_worker.as_str(), timing.decode_worker.as_str()), ("p0", "d0"));
    assert!(timing.first_token > 0.0 && timing.total >= timing.first_token);
    cluster.all_is_free().await;
    let metrics = cluster.router.meters.text();
    assert!(metrics.contains("tandem_router_requests_total{outcome=\"finished\"} 1"), "{metrics}");
}

#[tokio::test]
async fn steps_of_several_tokens_come_in_order_and_are_counted() {
    let cluster = Cluster::start(CONFIG, 1, 2).await;
    cluster.draws(4);
    // two steps of the first start, then one of the second
    cluster.falls_ill("d0", Ill::Silent(3));
    let deltas = answer(&cluster.router, asked(12)).await.unwrap();
    assert_eq!(text(&deltas), "abcdefghijkl");
    let ids: Vec<u32> = deltas.iter().flat_map(|delta| delta.token_ids.clone()).collect();
    assert_eq!(ids, (97..109).collect::<Vec<u32>>());
    for (sequence, delta) in (0..).zip(&deltas) {
        assert_eq!(delta.sequence, sequence);
    }
    let last = deltas.last().unwrap();
    let usage = last.usage.unwrap();
    // of four, four and two tokens; a token of prefill before each start's
    assert_eq!((usage.completion_tokens, usage.drafted_tokens, usage.accepted_tokens), (12, 9, 7));
    assert_eq!(last.timing.as_ref().unwrap().migrations, 1);

    // a stop inside a step: what the step drew after it is not delivered
    let mut stops = asked(20);
    stops.sampling.stop = vec!["g".to_owned()];
    let deltas = answer(&cluster.router, stops).await.unwrap();
    assert_eq!(text(&deltas), "abcdef");
    let usage = deltas.last().unwrap().usage.unwrap();
    assert_eq!((usage.drafted_tokens, usage.accepted_tokens), (6, 6));
    cluster.all_is_free().await;
}

#[tokio::test]
async fn one_token_stop_tokens_and_stop_strings_end_early() {
    let cluster = Cluster::start(CONFIG, 1, 1).await;
    let deltas = answer(&cluster.router, asked(1)).await.unwrap();
    assert_eq!((text(&deltas).as_str(), deltas.len()), ("a", 1));
    let mut stops = asked(20);
    stops.sampling.stop = vec!["de".to_owned()];
    let deltas = answer(&cluster.router, stops).await.unwrap();
    assert_eq!(text(&deltas), "abc");
    assert_eq!(deltas.last().unwrap().finish.as_ref().unwrap().stop_sequence, "de");
    let mut stops = asked(20);
    stops.sampling.stop_token_ids = vec![i64::from(b'c')];
    let deltas = answer(&cluster.router, stops).await.unwrap();
    assert_eq!(text(&deltas), "ab");
    assert_eq!(deltas.last().unwrap().usage.unwrap().completion_tokens, 3);
    cluster.all_is_free().await;
}

#[tokio::test]
async fn a_lost_prefill_worker_is_replaced_or_named() {
    let cluster = Cluster::start(CONFIG, 2, 1).await;
    cluster.falls_ill("p0", Ill::Breaks(1));
    let deltas = answer(&cluster.router, asked(4)).await.unwrap();
    assert_eq!(text(&deltas), "abcd");
    let timing = deltas.last().unwrap().timing.clone().unwrap();
    assert_eq!((timing.prefill_worker.as_str(), timing.migrations), ("p1", 1));
    cluster.falls_ill("p1", Ill::Silent(1));
    let lost = answer(&cluster.router, asked(4)).await.unwrap_err();
    assert_eq!(reason(&lost), ErrorReason::WorkerLost, "{lost}");
    cluster.all_is_free().await;
}

#[tokio::test]
async fn a_failed_transfer_is_tried_again_on_the_same_pair_if_there_is_no_other() {
    let bounds = Bounds { retries: 1, ..CONFIG.bounds };
    let cluster = Cluster::start(Config { bounds, ..CONFIG }, 1, 1).await;
    cluster.falls_ill("d0", Ill::Says(0, ErrorReason::TransferFailed));
    let failed = answer(&cluster.router, asked(4)).await.unwrap_err();
    assert_eq!(reason(&failed), ErrorReason::TransferFailed, "{failed}");
    assert!(cluster.router.meters.text().contains("tandem_router_migrations_total 1"));
    cluster.all_is_free().await;
}

#[tokio::test]
async fn a_decode_worker_lost_midway_costs_no_token_and_doubles_none() {
    let cluster = Cluster::start(CONFIG, 1, 2).await;
    cluster.falls_ill("d0", Ill::Silent(4));
    let deltas = answer(&cluster.router, asked(8)).await.unwrap();
    assert_eq!(text(&deltas), "abcdefgh");
    let ids: Vec<u32> = deltas.iter().flat_map(|delta| delta.token_ids.clone()).collect();
    assert_eq!(ids, (97..105).collect::<Vec<u32>>());
    let timing = deltas.last().unwrap().timing.clone().unwrap();
    assert_eq!((timing.decode_worker.as_str(), timing.migrations), ("d1", 1));
    cluster.all_is_free().await;
    let metrics = cluster.router.meters.text();
    assert!(metrics.contains("tandem_router_pause_seconds_count 1"), "{metrics}");
}

#[tokio::test]
async fn a_silent_end_of_the_last_decode_worker_is_an_error() {
    let bounds = Bounds { retries: 0, ..CONFIG.bounds };
    let cluster = Cluster::start(Config { bounds, ..CONFIG }, 1, 1).await;
    cluster.falls_ill("d0", Ill::Silent(3));
    let lost = answer(&cluster.router, asked(8)).await.unwrap_err();
    assert_eq!(reason(&lost), ErrorReason::WorkerLost, "{lost}");
    cluster.all_is_free().await;
}

#[tokio::test]
async fn a_client_that_leaves_takes_everything_along() {
    let cluster = Cluster::start(CONFIG, 1, 1).await;
    cluster.falls_ill("d0", Ill::Hangs(3));
    let arrival = || cluster.router.arrival(Span::none(), Client::Anyone, None);
    let mut tokens = cluster.router.generate(asked(8), arrival()).await.unwrap();
    assert!(tokens.next().await.unwrap().unwrap().text.starts_with('a'));
    assert_eq!(cluster.router.metrics.permits_held.get(), 1);
    drop(tokens);
    cluster.all_is_free().await;

    // While room is being reserved, and before any call began.
    cluster.falls_ill("d0", Ill::Slow(100));
    let gone = tokio::time::timeout(Duration::from_millis(30), cluster.router.generate(asked(8), arrival()));
    assert!(gone.await.is_err());
    cluster.falls_ill("d0", Ill::Not);
    drop(cluster.router.generate(asked(8), arrival()).await.unwrap());
    cluster.all_is_free().await;
    assert!(cluster.router.meters.text().contains("{outcome=\"cancelled\"} 3"));
}

#[tokio::test]
async fn a_deadline_ends_what_hangs() {
    let cluster = Cluster::start(CONFIG, 1, 1).await;
    for (worker, ill) in [("p0", Ill::Hangs(1)), ("d0", Ill::Hangs(3)), ("d0", Ill::Slow(60_000))] {
        cluster.falls_ill("p0", Ill::Not);
        cluster.falls_ill(worker, ill);
        let arrival = cluster.router.arrival(Span::none(), Client::Anyone, Some(Duration::from_millis(150)));
        let late = match cluster.router.generate(asked(8), arrival).await {
            Err(error) => error,
            Ok(mut tokens) => loop {
                match tokens.next().await {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => break error,
                    None => panic!("{ill:?}: a silent end"),
                }
            },
        };
        assert_eq!(reason(&late), ErrorReason::Deadline, "{ill:?}: {late}");
    }
    cluster.all_is_free().await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_cut_off_at_its_deadline() {
    let cluster = Cluster::start(CONFIG, 1, 1).await;
    let arrival = cluster.router.arrival(Span::none(), Client::Anyone, Some(Duration::from_secs(1)));
    let deadline = arrival.deadline;
    let mut tokens = cluster.router.generate(asked(8), arrival).await.unwrap();
    assert!(tokens.next().await.unwrap().is_ok());
    tokio::time::sleep_until(deadline).await;
    cluster.all_is_free().await;
    assert!(cluster.router.meters.text().contains("{outcome=\"deadline\"} 1"));
    assert_eq!(reason(&tokens.next().await.unwrap().unwrap_err()), ErrorReason::Deadline);
    assert!(tokens.next().await.is_none());
}

#[tokio::test]
async fn who_can_not_be_served_is_told_why() {
    let limits = Limits { in_flight: 1, waiting: 0, wait: Duration::from_secs(1) };
    let cluster = Cluster::start(Config { limits, ..CONFIG }, 1, 1).await;
    cluster.falls_ill("d0", Ill::Hangs(1));
    let arrival = cluster.router.arrival(Span::none(), Client::Anyone, None);
    let first = cluster.router.generate(asked(8), arrival).await.unwrap();
    let overloaded = answer(&cluster.router, asked(8)).await.unwrap_err();
    assert_eq!(reason(&overloaded), ErrorReason::Overloaded);
    assert!(overloaded.fault().retry_after.is_some());
    drop(first);
    cluster.router.gate.close();
    let draining = answer(&cluster.router, asked(8)).await.unwrap_err();
    assert_eq!(reason(&draining), ErrorReason::Draining);

    let empty = Cluster::start(CONFIG, 0, 1).await;
    let nobody = answer(&empty.router, asked(8)).await.unwrap_err();
    assert_eq!(reason(&nobody), ErrorReason::NoWorker, "{nobody}");
    empty.all_is_free().await;
}
