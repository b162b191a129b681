//! Which faults happen when. Pure: a seed in, a list out.

use std::ops::{Range, RangeInclusive};
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
    /// Nothing that the first host sends reaches the second, and nothing is said about it. It lasts longer than any lease:
    /// a worker whose beats are lost like this lives on.
    Unheard(String, String),
    /// What is sent between two hosts waits.
    Hold(String, String),
    /// Two hosts reach each other again; what waited arrives.
    Mend(String, String),
    /// From now on one in so many writes of a transfer is damaged; 0 for none.
    Noise(u32),
    /// From now on messages take up to so many milliseconds.
    Slow(u64),
    /// The engine of a host has a clock that is so many milliseconds ahead of the others'.
    Skew(String, i64),
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
/// How long a fault lasts, in milliseconds.
const SHORT: Range<u64> = 200..2_500;
/// How long one lasts that outlives leases, in milliseconds.
const LONG: Range<u64> = 2_500..6_000;
/// How far a clock jumps, in milliseconds.
const JUMP: RangeInclusive<i64> = -20_000..=20_000;

impl Plan {
    /// So many faults for a fleet. Each is undone after a while; a worker is never crashed twice at once.
    pub fn new(seed: u64, fleet: Fleet, count: usize) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mut faults = Vec::new();
        let mut down: Vec<(String, RangeInclusive<Duration>)> = Vec::new();
        for _ in 0..count {
            let from = Duration::from_millis(random.random_range(0..LAST));
            let Some((fault, undo, lasts)) = fault(&mut random, fleet) else { continue };
            let to = from + Duration::from_millis(random.random_range(lasts));
            if let Fault::Crash(host) = &fault {
                let overlaps =
                    |known: &RangeInclusive<Duration>| *known.start() <= to && from <= *known.end();
                if down.iter().any(|(other, known)| other == host && overlaps(known)) {
                    continue;
                }
                down.push((host.clone(), from..=to));
            }
            faults.extend([Timed { at: from, fault }, Timed { at: to, fault: undo }]);
        }
        faults.sort_by_key(|timed| timed.at);
        Self { seed, faults }
    }
}

/// A fault, what undoes it, and how long it may last; none where a host would be cut off from itself.
fn fault(random: &mut StdRng, fleet: Fleet) -> Option<(Fault, Fault, Range<u64>)> {
    let kind = random.random_range(0..13);
    let (host, other) = (worker(random, fleet), other(random, fleet));
    if matches!(kind, 4..=8) && host == other {
        return None;
    }
    let mend = Fault::Mend(host.clone(), other.clone());
    Some(match kind {
        0..=3 => (Fault::Crash(host.clone()), Fault::Start(host), SHORT),
        4 => (Fault::Hold(host, other), mend, SHORT),
        5..=6 => (Fault::Cut(host, other), mend, SHORT),
        7 => (Fault::Unheard(host, other), mend, LONG),
        8 => (Fault::Unheard(other, host), mend, LONG),
        9..=10 => (Fault::Noise(random.random_range(3..40)), Fault::Noise(0), SHORT),
        11 => (Fault::Slow(random.random_range(20..200)), Fault::Slow(5), SHORT),
        _ => (Fault::Skew(host.clone(), random.random_range(JUMP)), Fault::Skew(host, 0), SHORT),
    })
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
