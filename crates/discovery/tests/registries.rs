//! One contract, kept by every registry: by the one inside a router, and by a real etcd server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    missing_debug_implementations
)]

#[path = "registries/benches.rs"]
mod benches;
#[path = "registries/server.rs"]
mod server;
#[path = "registries/workers.rs"]
mod workers;

use std::time::Duration;

use discovery::View;
use proto::v1::{Load, Role};
use tokio::{sync::watch, time::timeout};

use benches::{Bench, Inside, Outside};
use workers::Worker;

fn running(running: u32) -> Load {
    Load { running, ..Load::default() }
}

/// Waits until the members are as they should be.
async fn until(view: &mut watch::Receiver<View>, seconds: u64, right: impl Fn(&View) -> bool) {
    let seen = timeout(Duration::from_secs(seconds), view.wait_for(|view| right(view))).await.map(drop);
    assert!(seen.is_ok(), "the view never was right: {:?}", *view.borrow());
}

fn names(view: &View) -> Vec<&str> {
    view.members().map(|member| member.record.name.as_str()).collect()
}

fn is(view: &View, name: &str, worker: &Worker) -> bool {
    view.get(name).is_some_and(|member| member.record.incarnation == worker.incarnation)
}

async fn members_come_say_how_busy_they_are_and_go(bench: impl Bench) {
    let mut view = bench.view();
    let mut decode = Worker::start("d0", Role::Decode, running(1), bench.announce());
    let prefill = Worker::start("p0", Role::Prefill, running(2), bench.announce());
    until(&mut view, 10, |view| names(view) == ["d0", "p0"]).await;
    let member = view.borrow().get("d0").cloned().unwrap();
    assert_eq!((member.load, member.record.hash_unit_tokens), (running(1), 512));
    assert_eq!(member.record.fingerprint.as_ref().unwrap().weights_digest, vec![0, 255]);

    prefill.says(running(3));
    until(&mut view, 2, |view| view.get("p0").is_some_and(|member| member.load == running(3))).await;
    decode.says(Load { draining: true, ..running(1) });
    until(&mut view, 2, |view| view.of(Role::Decode).count() == 0 && view.get("d0").is_some()).await;
    decode.leaves();
    until(&mut view, 2, |view| names(view) == ["p0"]).await;
    prefill.dies();
    until(&mut view, 4, |view| names(view).is_empty()).await;
}

async fn a_name_belongs_to_its_newest_start(bench: impl Bench) {
    let mut view = bench.view();
    let mut old = Worker::start("d0", Role::Decode, running(1), bench.announce());
    until(&mut view, 10, |view| is(view, "d0", &old)).await;
    let new = Worker::start("d0", Role::Decode, running(2), bench.announce());
    until(&mut view, 10, |view| is(view, "d0", &new)).await;
    assert!(old.refused().await.contains("newer start"));
    old.dies();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(is(&view.borrow(), "d0", &new), "an old one's end is nothing to the new one");
    new.dies();
    let third = Worker::start("d0", Role::Decode, running(3), bench.announce());
    until(&mut view, 5, |view| is(view, "d0", &third)).await;
}

async fn a_record_that_says_too_little_is_refused(bench: impl Bench) {
    let mut nameless = Worker::start("", Role::Decode, running(0), bench.announce());
    assert!(nameless.refused().await.contains("name is missing"));
    assert_eq!(bench.view().borrow().members().count(), 0);
}

async fn members_join_again_when_all_is_forgotten(mut bench: impl Bench) {
    let workers = [("d0", Role::Decode), ("d1", Role::Decode), ("p0", Role::Prefill)]
        .map(|(name, role)| (name, Worker::start(name, role, running(1), bench.announce())));
    let all = |view: &View| {
        names(view).len() == workers.len() && workers.iter().all(|(name, worker)| is(view, name, worker))
    };
    until(&mut bench.view(), 10, all).await;
    bench.begins_anew().await;
    let late = Worker::start("d2", Role::Decode, running(1), bench.announce());
    let whole = |view: &View| is(view, "d2", &late) && names(view).len() == workers.len() + 1;
    until(&mut bench.view(), 20, whole).await;
}

macro_rules! kept_by {
    ($registry:ident, $new:expr) => {
        mod $registry {
            use super::*;

            #[tokio::test]
            async fn members_come_say_how_busy_they_are_and_go() {
                super::members_come_say_how_busy_they_are_and_go($new).await;
            }

            #[tokio::test]
            async fn a_name_belongs_to_its_newest_start() {
                super::a_name_belongs_to_its_newest_start($new).await;
            }

            #[tokio::test]
            async fn a_record_that_says_too_little_is_refused() {
                super::a_record_that_says_too_little_is_refused($new).await;
            }

            #[tokio::test]
            async fn members_join_again_when_all_is_forgotten() {
                super::members_join_again_when_all_is_forgotten($new).await;
            }
        }
    };
}

kept_by!(in_memory, Inside::new().await);
kept_by!(in_etcd, Outside::new());

#[path = "registries/etcd.rs"]
mod etcd;
