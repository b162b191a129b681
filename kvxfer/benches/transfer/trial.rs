use std::time::{Duration, Instant};

use bytes::Bytes;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::Pid;

/// Bytes sources and targets rotate through.
pub(crate) const ARENA: usize = 1 << 30;
pub(crate) const PAGE: usize = 64 << 10;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    Whole,
    /// Every second page of 64 KiB.
    Pages,
}

#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) bytes: usize,
    pub(crate) cut: Cut,
    pub(crate) count: usize,
}

/// Source memory, no two pages alike.
pub(crate) struct Arena {
    bytes: Bytes,
}

impl Arena {
    pub(crate) fn new() -> Arena {
        let mut bytes = vec![0; ARENA];
        for (number, word) in bytes.as_chunks_mut().0.iter_mut().enumerate() {
            *word = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        }
        Arena { bytes: bytes.into() }
    }

    /// The pieces of transfer `number`.
    pub(crate) fn pieces(&self, plan: Plan, number: usize) -> Vec<Bytes> {
        match plan.cut {
            Cut::Whole => {
                let start = number * plan.bytes % (ARENA - plan.bytes + 1) / PAGE * PAGE;
                vec![self.bytes.slice(start..start + plan.bytes)]
            }
            Cut::Pages => {
                let pages = plan.bytes / PAGE;
                let page = |at: usize| {
                    let start = (number * pages + at) * 2 * PAGE % ARENA;
                    self.bytes.slice(start..start + PAGE)
                };
                (0..pages).map(page).collect()
            }
        }
    }
}

/// What a plan's transfers took, from the moment the state was there to the other end's word that it holds it.
#[derive(Default)]
pub(crate) struct Took {
    bytes: usize,
    each: Vec<Duration>,
    cpu: Duration,
}

/// A transfer being measured.
pub(crate) struct Stopwatch {
    at: Instant,
    cpu: Duration,
}

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch { cpu: cpu(), at: Instant::now() }
    }
}

impl Took {
    pub(crate) fn stop(&mut self, watch: &Stopwatch, bytes: usize) {
        self.each.push(watch.at.elapsed());
        self.cpu += cpu() - watch.cpu;
        self.bytes += bytes;
    }

    pub(crate) fn json(mut self) -> String {
        let seconds = self.each.iter().sum::<Duration>().as_secs_f64();
        self.each.sort();
        let p50 = self.each[self.each.len() / 2].as_secs_f64();
        let gb = self.bytes as f64 / 1e9;
        let (rate, cpu) = (gb / seconds, self.cpu.as_secs_f64() / gb);
        format!("{{\"gb_per_s\":{rate:.4},\"cpu_per_gb\":{cpu:.4},\"p50_us\":{:.1}}}", p50 * 1e6)
    }
}

/// Keeps the calling thread on one core, where there are two: ends that share one measure the scheduler.
pub(crate) fn stay_on(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core).unwrap();
    // with a single core there is nothing to choose
    _ = sched_setaffinity(Pid::from_raw(0), &cores);
}

/// User and system time of both ends.
fn cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    let (user, system) = (usage.user_time(), usage.system_time());
    Duration::from_micros((user.tv_sec() + system.tv_sec()) as u64 * 1_000_000)
        + Duration::from_micros((user.tv_usec() + system.tv_usec()) as u64)
}
