//! Which faults happen when. Pure: a seed in, a list out.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

#[cfg(test)]
mod tests;

/// Who can fail.
#[derive(Clone, Copy, Debug)]
pub struct Fleet {
    /// Prefill workers, `prefill-0` and so on.
    pub prefill: usize,
    /// Decode workers, `decode-0` and so on.
    pub decode: usize,
}

/// Something that goes wrong, or is right again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The host's process dies, and with it all its connections.
    Crash(String),
    /// A crashed host's process starts anew.
    Start(String),
    /// Nothing passes between two hosts, and nothing is said about it.
    Cut(String, String),
    /// What is sent between two hosts waits.
    Hold(String, String),
    /// Two hosts reach each other again; what waited arrives.
    Mend(String, String),
    /// From now on one in so many writes of a transfer is damaged; 0 for none.
    Noise(u32),
    /// From now on messages take up to so many milliseconds.
    Slow(u64),
}

/// A fault at its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Since the cluster became ready.
    pub at: Duration,
    /// What happens.
    pub fault: Fault,
}

/// Faults in order of time. Everything is right again at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed it was made from.
    pub seed: u64,
    /// In order of time.
    pub faults: Vec<Timed>,
}

/// When a plan's last fault begins, in milliseconds.
const LAST: u64 = 8_000;

impl Plan {
    /// So many faults for a fleet. Each is undone after a while; a worker is never crashed twice at once.
    pub fn new(seed: u64, fleet: Fleet, count: usize) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mut faults = Vec::new();
        let mut down: Vec<(String, Duration)> = Vec::new();
        for _ in 0..count {
            let at = Duration::from_millis(random.random_range(0..LAST));
            let undone = at + Duration::from_millis(random.random_range(200..2_500));
            let mut put = |at, fault| faults.push(Timed { at, fault });
            match random.random_range(0..10) {
                0..=4 => {
                    let host = worker(&mut random, fleet);
                    let overlaps = |(other, until): &(String, Duration)| *other == host && at < *until;
                    if down.iter().any(overlaps)
                        || faults.iter().any(|timed| is_crash_within(timed, &host, at, undone))
                    {
                        continue;
                    }
                    down.push((host.clone(), undone));
                    faults.push(Timed { at, fault: Fault::Crash(host.clone()) });
                    faults.push(Timed { at: undone, fault: Fault::Start(host) });
                }
                kind @ 5..=7 => {
                    let pair = (worker(&mut random, fleet), other(&mut random, fleet));
                    if pair.0 == pair.1 {
                        continue;
                    }
                    let (a, b) = pair;
                    let broken = if kind == 5 {
                        Fault::Hold(a.clone(), b.clone())
                    } else {
                        Fault::Cut(a.clone(), b.clone())
                    };
                    put(at, broken);
                    put(undone, Fault::Mend(a, b));
                }
                8 => {
                    put(at, Fault::Noise(random.random_range(3..40)));
                    put(undone, Fault::Noise(0));
                }
                _ => {
                    put(at, Fault::Slow(random.random_range(20..200)));
                    put(undone, Fault::Slow(5));
                }
            }
        }
        faults.sort_by_key(|timed| timed.at);
        Self { seed, faults }
    }
}

fn is_crash_within(timed: &Timed, host: &str, from: Duration, to: Duration) -> bool {
    matches!(&timed.fault, Fault::Crash(name) if name == host) && timed.at >= from && timed.at <= to
}

fn worker(random: &mut StdRng, fleet: Fleet) -> String {
    let index = random.random_range(0..fleet.prefill + fleet.decode);
    match index.checked_sub(fleet.prefill) {
        None => format!("prefill-{index}"),
        Some(index) => format!("decode-{index}"),
    }
}

fn other(random: &mut StdRng, fleet: Fleet) -> String {
    if random.random_bool(0.3) { "router".to_owned() } else { worker(random, fleet) }
}
