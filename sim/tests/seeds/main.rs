//! Runs of the whole cluster under faults. `TANDEM_SIM_SEEDS=from..to` runs others than the usual ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod hosts;
mod leaving;
mod repeated;
mod requests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sim::{Damage, Fault, Fleet, Plan, Timed};
use turmoil::Sim;

use hosts::{Running, World};
use requests::{DEADLINE, Ended, Outcome, Outcomes};

const FLEET: Fleet = Fleet { prefill: 2, decode: 2 };
const REQUESTS: usize = 40;
/// For connections that nobody closed to be missed, and leases to run out.
const SETTLE: Duration = Duration::from_secs(15);

/// What a run came to.
#[derive(Debug)]
struct Report {
    right: usize,
    left: usize,
    failed: Vec<(usize, Outcome)>,
    longest: Duration,
    /// What was done to transfers, and how often.
    damaged: BTreeMap<Damage, u64>,
    /// Requests that went on with other workers.
    migrations: u64,
    /// Prompt tokens that need not be computed, by the workers that live at the end.
    cached: u64,
}

/// One run; panics where a promise is broken.
fn run(seed: u64, faults: usize) -> Report {
    traced(seed, faults).0
}

/// One run, and all that happened in it.
fn traced(seed: u64, faults: usize) -> (Report, Vec<String>) {
    let world = World::new(seed);
    let mut trace = Vec::new();
    let mut sim = cluster(seed, &world);
    let outcomes = Outcomes::default();
    let began: Arc<Mutex<Option<Duration>>> = Arc::default();
    {
        let (world, outcomes, began) = (world.clone(), Arc::clone(&outcomes), Arc::clone(&began));
        sim.client("client", async move {
            let network = world.network("client");
            requests::ready(&network).await;
            *began.lock().unwrap() = turmoil::sim_elapsed();
            requests::ask_all(seed, REQUESTS, &network, outcomes).await;
            tokio::time::sleep(SETTLE).await;
            Ok(())
        });
    }
    let mut coming = Plan::new(seed, FLEET, faults).faults.into_iter().peekable();
    loop {
        let since = began.lock().unwrap().map(|began| sim.elapsed() - began);
        while let Some(timed) = coming.next_if(|timed| since.is_some_and(|since| since >= timed.at)) {
            apply(&mut sim, &world, &timed);
            trace.push(format!("{:?} {timed:?}", sim.elapsed()));
        }
        if sim.step().unwrap_or_else(|error| panic!("seed {seed}: {error}")) {
            break;
        }
    }
    held(seed, &world.running);
    let counted = |name| counter(&world.running, name);
    let (migrations, cached) =
        (counted("tandem_router_migrations_total"), counted("tandem_prefix_hit_tokens_total"));
    let outcomes = outcomes.lock().unwrap();
    trace.extend(outcomes.iter().map(|ended| format!("{ended:?}")));
    for (host, meters) in world.running.lock().unwrap().iter() {
        let text = meters.text();
        let lines: BTreeSet<&str> = text.lines().collect();
        trace.extend(lines.into_iter().map(|line| format!("{host} {line}")));
    }
    (report(&outcomes, world.noise.done(), migrations, cached), trace)
}

/// A router and its workers, each on a host of its own.
fn cluster(seed: u64, world: &World) -> Sim<'static> {
    let mut sim = turmoil::Builder::new()
        .rng_seed(seed)
        .simulation_duration(DEADLINE * 20)
        .tick_duration(Duration::from_millis(1))
        .min_message_latency(Duration::from_millis(0))
        .max_message_latency(Duration::from_millis(5))
        .tcp_capacity(1 << 16)
        .build();
    let own = world.clone();
    sim.host("router", move || hosts::router(own.clone()));
    for index in 0..FLEET.prefill {
        let (own, name) = (world.clone(), format!("prefill-{index}"));
        sim.host(name.clone(), move || hosts::prefill(own.clone(), name.clone()));
    }
    for index in 0..FLEET.decode {
        let (own, name) = (world.clone(), format!("decode-{index}"));
        sim.host(name.clone(), move || hosts::decode(own.clone(), name.clone()));
    }
    sim
}

fn apply(sim: &mut Sim<'_>, world: &World, timed: &Timed) {
    match &timed.fault {
        Fault::Crash(host) => sim.crash(host.as_str()),
        Fault::Start(host) => sim.bounce(host.as_str()),
        Fault::Cut(a, b) => sim.partition(a.as_str(), b.as_str()),
        Fault::Unheard(from, to) => sim.partition_oneway(from.as_str(), to.as_str()),
        Fault::Hold(a, b) => sim.hold(a.as_str(), b.as_str()),
        Fault::Mend(a, b) => {
            sim.repair(a.as_str(), b.as_str());
            sim.release(a.as_str(), b.as_str());
        }
        Fault::Noise(one_in) => world.noise.set(*one_in),
        Fault::Skew(host, ahead) => world.clocks.set(host, *ahead),
        Fault::Slow(millis) => sim.set_max_message_latency(Duration::from_millis(*millis)),
    }
}

/// Nothing is held by any process.
fn held(seed: u64, running: &Running) {
    for (host, meters) in running.lock().unwrap().iter() {
        let text = meters.text();
        let held = text.lines().filter(|line| {
            !line.starts_with('#') && (line.contains("_held ") || line.contains("_staging_bytes "))
        });
        let mut gauges = 0;
        for line in held {
            assert!(line.ends_with(" 0"), "seed {seed}, {host}: {line}");
            gauges += 1;
        }
        assert!(gauges > 0, "{host} has no gauge of what is held");
    }
}

/// A counter of all processes that live.
fn counter(running: &Running, name: &str) -> u64 {
    let of = |meters: &telemetry::Meters| {
        let text = meters.text();
        let values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        values.map(|value| value.parse::<u64>().unwrap()).sum::<u64>()
    };
    running.lock().unwrap().values().map(of).sum()
}

fn report(outcomes: &[Ended], damaged: BTreeMap<Damage, u64>, migrations: u64, cached: u64) -> Report {
    assert_eq!(outcomes.len(), REQUESTS);
    let count = |wanted| outcomes.iter().filter(|(_, outcome, _)| *outcome == wanted).count();
    let failed = outcomes.iter().filter(|(_, outcome, _)| matches!(outcome, Outcome::Failed(..)));
    Report {
        right: count(Outcome::Right),
        left: count(Outcome::Left),
        failed: failed.map(|(index, outcome, _)| (*index, outcome.clone())).collect(),
        longest: outcomes.iter().map(|(_, _, took)| *took).max().unwrap_or_default(),
        damaged,
        migrations,
        cached,
    }
}

#[test]
fn without_faults_every_request_is_right() {
    let report = run(1, 0);
    assert!(report.failed.is_empty(), "{report:?}");
    assert!(report.right > 20 && report.left > 0, "{report:?}");
}

#[test]
fn no_fault_makes_a_wrong_token_or_leaves_anything_held() {
    let seeds = std::env::var("TANDEM_SIM_SEEDS").unwrap_or_else(|_| "0..6".to_owned());
    let (from, to) = seeds.split_once("..").expect("from..to");
    let mut reports = Vec::new();
    for seed in from.parse::<u64>().unwrap()..to.parse().unwrap() {
        let report = run(seed, 10);
        println!("seed {seed}: {report:?}");
        reports.push(report);
    }
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
    let (right, failed) = (sum(|report| report.right as u64), sum(|report| report.failed.len() as u64));
    let longest = reports.iter().map(|report| report.longest).max().unwrap_or_default();
    println!("{right} right, {failed} failed, the longest took {longest:?}");
    assert!(failed * 100 <= right, "{failed} failed of {right}");
    // Faults that nobody notices show nothing.
    let migrations = sum(|report| report.migrations);
    assert!(migrations > 10 && sum(|report| report.cached) > 0, "{migrations}");
    for kind in Damage::ALL {
        let times: u64 = reports.iter().filter_map(|report| report.damaged.get(&kind)).sum();
        println!("{kind:?} {times} times");
        assert!(times > 0, "no write was {kind:?}");
    }
}
