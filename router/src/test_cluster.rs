//! A router over worker processes that are played by this one: real gRPC, scripted answers.
//!
//! What is drawn is set for the cluster; faults are set per worker and last until changed.

mod script;
mod worker;

use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use discovery::{InMemory, Registry};
use process::{Drain, Random};
use proto::v1::{ErrorReason, PrefillRequest, Role};
use telemetry::Meters;

use crate::{Bounds, Clients, Config, Deps, Limits, Model, Router};
pub(crate) use script::Script;
use worker::{Shared, Worker};

/// With time to wait for a worker.
pub(crate) const PATIENT: Config =
    Config { bounds: Bounds { wait: Duration::from_secs(8), ..CONFIG.bounds }, ..CONFIG };

pub(crate) const CONFIG: Config = Config {
    limits: Limits { in_flight: 4, waiting: 0, wait: Duration::from_millis(200) },
    timeout: Duration::from_secs(10),
    bounds: Bounds { retries: 5, losses: 3, wait: Duration::from_millis(150) },
    on_demand: false,
    connection_age: Duration::from_secs(60),
};

/// What a worker does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ill {
    /// Nothing.
    Not,
    /// The connection breaks after this many events.
    Breaks(usize),
    /// The stream ends after this many events.
    Silent(usize),
    /// Nothing comes after this many events.
    Hangs(usize),
    /// After this many events it gives this reason.
    Says(usize, ErrorReason),
    /// No call reaches it.
    Unreachable,
    /// It grants room, and no call that uses the room reaches it.
    DiesReserved,
    /// Reservations are answered after this many milliseconds.
    Slow(u64),
}

/// Ids that differ, and seeds that do not.
fn one_seed() -> Random {
    let drawn = AtomicU8::new(0);
    Random::new(move |bytes| match bytes.len() {
        8 => bytes.fill(7),
        _ => bytes.fill(drawn.fetch_add(1, Ordering::Relaxed)),
    })
}

pub(crate) struct Cluster {
    pub(crate) router: Router,
    pub(crate) registry: InMemory,
    pub(crate) drain: Drain,
    workers: Vec<Worker>,
    shared: Shared,
}

impl Cluster {
    /// As many workers as asked for, named p0, p1, ... and d0, d1, ...
    pub(crate) async fn start(config: Config, prefill: usize, decode: usize) -> Self {
        Self::of(crate::test_model::write, config, prefill, decode).await
    }

    /// A cluster whose model `write` writes.
    pub(crate) async fn of(write: fn(&Path), config: Config, prefill: usize, decode: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path());
        let model = Model::open(folder.path(), "demo".to_owned()).unwrap();
        let registry = InMemory::new();
        let drain = Drain::new();
        let deps = Deps {
            network: net::system(),
            members: registry.watch(),
            meters: Meters::new(),
            drain: drain.clone(),
            random: one_seed(),
            clients: Clients::default(),
            peers: Vec::new(),
        };
        let router = Router::build(model, config, deps);
        let mut workers = Vec::new();
        let shared = Shared::default();
        for index in 0..prefill {
            workers.push(Worker::start(Role::Prefill, format!("p{index}"), &registry, &shared).await);
        }
        for index in 0..decode {
            workers.push(Worker::start(Role::Decode, format!("d{index}"), &registry, &shared).await);
        }
        Self { router, registry, drain, workers, shared }
    }

    /// What is drawn from now on.
    pub(crate) fn says(&self, script: Script) {
        *self.shared.script.lock().unwrap() = script;
    }

    /// Every decode step draws so many tokens from now on: that many less one are accepted drafts.
    pub(crate) fn draws(&self, tokens: usize) {
        *self.shared.window.lock().unwrap() = tokens;
    }

    /// Waits until workers have failed so many times.
    pub(crate) async fn migrated(&self, times: u64) {
        while self.router.metrics.migrations.get() < times {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// What prefill workers were asked for since this was called last.
    pub(crate) fn prefilled(&self) -> Vec<PrefillRequest> {
        std::mem::take(&mut *self.shared.prefilled.lock().unwrap())
    }

    pub(crate) fn falls_ill(&self, name: &str, ill: Ill) {
        *self.worker(name).ill.lock().unwrap() = ill;
    }

    /// The worker's membership ends.
    pub(crate) fn leaves(&self, name: &str) {
        self.worker(name).seat.lock().unwrap().take();
    }

    /// The worker is a member again.
    pub(crate) fn joins(&self, name: &str) {
        let worker = self.worker(name);
        *worker.seat.lock().unwrap() = Some(worker.sit(&self.registry));
    }

    /// Another start of the worker, in good health, of which the registry hears with its next [`Self::joins`].
    pub(crate) fn restarts(&self, name: &str) {
        let worker = self.worker(name);
        *worker.starts.lock().unwrap() += 1;
        *worker.ill.lock().unwrap() = Ill::Not;
    }

    fn worker(&self, name: &str) -> &Worker {
        self.workers.iter().find(|worker| worker.name == name).unwrap()
    }

    /// Waits until nothing is held anywhere.
    pub(crate) async fn all_is_free(&self) {
        for _ in 0..300 {
            let held = self.workers.iter().map(|worker| worker.held.lock().unwrap().len()).sum::<usize>();
            if held == 0 && self.router.metrics.permits_held.get() == 0 && self.drain.held() == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let held: Vec<_> =
            self.workers.iter().map(|worker| (&worker.name, worker.held.lock().unwrap())).collect();
        let permits = self.router.metrics.permits_held.get();
        panic!("still held: {held:?}, {permits} permits, {} tasks", self.drain.held());
    }
}
