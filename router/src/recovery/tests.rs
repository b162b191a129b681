use std::time::Duration;

use bytes::Bytes;
use proto::status::Fault;
use proto::v1::{ErrorReason, Role};
use tokio::time::Instant;

use super::{Bounds, CUT_OFF, Failure, LONGEST_PAUSE, Next, PROGRESS, Recovery, Stage};
use crate::error::Error;

const BOUNDS: Bounds = Bounds { retries: 8, losses: 3, wait: Duration::from_secs(20) };

fn recovery(now: Instant) -> Recovery {
    Recovery::new(BOUNDS, now + Duration::from_secs(60))
}

/// No worker that was lost is a member any more.
fn gone(_: &Bytes) -> bool {
    false
}

fn lost(role: Role) -> Error {
    Error::Lost { role, worker: "w".to_owned(), why: "connection lost".to_owned() }
}

fn says(role: Role, reason: ErrorReason) -> Error {
    Error::Worker { role, worker: "w".to_owned(), fault: Fault::new(reason, "so it is") }
}

fn nobody() -> Failure {
    let error = Error::NoWorker { role: Role::Decode, model: "m".to_owned() };
    Failure::Unplaced { error, served: true }
}

fn id(name: &'static str) -> Bytes {
    Bytes::from_static(name.as_bytes())
}

/// Both workers had the request, and drew next to nothing.
fn running(decode: &'static str, error: Error) -> Failure {
    after(1, decode, error)
}

fn after(drawn: u32, decode: &'static str, error: Error) -> Failure {
    Failure::Workers { stage: Stage::Running { drawn }, prefill: id("p"), decode: id(decode), error }
}

#[test]
fn a_death_is_answered_at_once_and_the_dead_is_avoided() {
    let now = Instant::now();
    let mut recovery = recovery(now);
    assert_eq!((recovery.attempt(), recovery.migrations()), (1, 0));
    assert_eq!(recovery.on(running("d", lost(Role::Decode)), gone, now), Next::Place { at: now });
    assert_eq!((recovery.attempt(), recovery.migrations()), (2, 1));
    assert_eq!(recovery.avoid(now).lost, [id("d")]);
    // still a member after that long: it was the connection that broke
    let avoid = recovery.avoid(now + CUT_OFF);
    assert_eq!((avoid.lost.len(), avoid.tried), (0, vec![id("d")]));
}

#[test]
fn a_worker_that_lost_its_state_may_serve_again() {
    let now = Instant::now();
    let mut recovery = recovery(now);
    let next = recovery.on(running("d", says(Role::Decode, ErrorReason::WorkerLost)), gone, now);
    assert_eq!(next, Next::Place { at: now });
    let avoid = recovery.avoid(now);
    assert_eq!((avoid.lost.len(), avoid.tried), (0, vec![id("d")]));
    // either side's fault
    recovery.on(running("d", says(Role::Prefill, ErrorReason::TransferFailed)), gone, now);
    assert_eq!(recovery.avoid(now).tried, [id("d"), id("p"), id("d")]);
}

#[test]
fn a_request_that_kills_what_serves_it_is_stopped() {
    let now = Instant::now();
    let mut poison = recovery(now);
    for decode in ["a", "b", "c"] {
        assert_eq!(poison.on(running(decode, lost(Role::Decode)), gone, now), Next::Place { at: now });
    }
    let Next::GiveUp(error) = poison.on(running("d", lost(Role::Decode)), gone, now) else {
        panic!("a fifth")
    };
    let fault = error.fault();
    assert_eq!((fault.reason, fault.retry_after), (ErrorReason::WorkerLost, None), "{error}");
    assert!(error.to_string().contains("4 workers"), "{error}");

    // connections that break while the workers live are nobody's death
    let mut cut = recovery(now);
    for decode in ["a", "b", "c", "d", "e"] {
        assert_eq!(cut.on(running(decode, lost(Role::Decode)), |_| true, now), Next::Place { at: now });
    }
    // a worker that says that it lost its state lives, too; that is bad enough
    let mut bad = recovery(now);
    let told = || running("d", says(Role::Decode, ErrorReason::WorkerLost));
    for _ in 0..3 {
        assert!(matches!(bad.on(told(), |_| true, now), Next::Place { .. }));
    }
    assert!(matches!(bad.on(told(), |_| true, now), Next::GiveUp(Error::Deadly { losses: 4, .. })));

    // one that gets on each time is not what kills them
    let mut long = recovery(now);
    for decode in ["a", "b", "c", "d", "e"] {
        let failure = after(PROGRESS, decode, lost(Role::Decode));
        assert_eq!(long.on(failure, gone, now), Next::Place { at: now });
    }

    // workers that were dead before they had the request were not killed by it
    let mut unlucky = recovery(now);
    for decode in ["a", "b", "c", "d", "e"] {
        let (stage, prefill, error) = (Stage::Reserving, id("p"), lost(Role::Decode));
        let failure = Failure::Workers { stage, prefill, decode: id(decode), error };
        assert_eq!(unlucky.on(failure, gone, now), Next::Place { at: now });
    }
}

#[test]
fn other_failures_are_answered_ever_more_slowly_and_not_for_ever() {
    let now = Instant::now();
    let mut recovery = recovery(now);
    let full = || running("d", says(Role::Decode, ErrorReason::NoRoom));
    let pauses: Vec<Duration> = (0..BOUNDS.retries)
        .map(|_| match recovery.on(full(), gone, now) {
            Next::Place { at } => at - now,
            next => panic!("{next:?}"),
        })
        .collect();
    assert_eq!(pauses[..3], [0, 50, 100].map(Duration::from_millis));
    assert!(pauses.is_sorted() && pauses.iter().all(|pause| *pause <= LONGEST_PAUSE));
    let Next::GiveUp(error) = recovery.on(full(), gone, now) else { panic!("one too often") };
    assert_eq!(error.fault().reason, ErrorReason::NoRoom);
}

#[test]
fn who_needs_a_worker_waits_for_one_up_to_a_bound() {
    let now = Instant::now();
    let mut recovery = recovery(now);
    recovery.on(running("d", lost(Role::Decode)), gone, now);
    assert_eq!(
        recovery.on(nobody(), gone, now),
        Next::Wait { until: now + CUT_OFF },
        "then it may be tried again"
    );
    let later = now + Duration::from_secs(7);
    assert_eq!(recovery.on(nobody(), gone, later), Next::Wait { until: now + BOUNDS.wait });
    let Next::GiveUp(error) = recovery.on(nobody(), gone, now + BOUNDS.wait) else { panic!("no end") };
    assert_eq!(error, lost(Role::Decode), "why it needed another one");

    // the next wait is a new one
    let mut again = Recovery::new(BOUNDS, now + Duration::from_secs(60));
    again.on(nobody(), gone, now);
    again.on(running("d", lost(Role::Decode)), gone, later);
    assert_eq!(again.on(nobody(), gone, later), Next::Wait { until: later + CUT_OFF });

    let empty = Failure::Unplaced {
        error: Error::NoWorker { role: Role::Decode, model: "m".to_owned() },
        served: false,
    };
    let mut first = Recovery::new(BOUNDS, now + Duration::from_secs(60));
    assert!(
        matches!(first.on(empty, gone, now), Next::GiveUp(Error::NoWorker { .. })),
        "a cluster that starts"
    );
}

#[test]
fn nothing_goes_on_after_the_deadline_or_for_the_clients_own_fault() {
    let now = Instant::now();
    let mut late = Recovery::new(BOUNDS, now);
    let Next::GiveUp(error) = late.on(running("d", lost(Role::Decode)), gone, now) else {
        panic!("too late")
    };
    assert_eq!(error.fault().reason, ErrorReason::Deadline);
    assert!(matches!(late.on(nobody(), gone, now), Next::GiveUp(Error::Deadline { .. })));
    for reason in [ErrorReason::InvalidField, ErrorReason::ContextLength, ErrorReason::Internal] {
        let mut refused = recovery(now);
        let next = refused.on(running("d", says(Role::Prefill, reason)), gone, now);
        assert_eq!(next, Next::GiveUp(says(Role::Prefill, reason)));
        assert_eq!(refused.migrations(), 0);
    }
}
