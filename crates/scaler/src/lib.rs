//! How many workers of a role the load asks for.
//!
//! The router tells a [`Scaler`] every second what the cluster has to do and with how many workers, and autoscalers ask it. It
//! is a value that is given the time: the same loads at the same times give the same answers, so that several routers, which
//! all hear the same workers, agree.
//!
//! Out is at once; in is slow, because a slice that is given back can take a day to get again: only to as many workers as the
//! load of the last [`Settings::hold`] would have needed, and only if those that stay would not be near their target.

mod settings;
mod window;

pub use settings::{Decode, Prefill, Refused, Role, Settings};

use std::time::{Duration, Instant};

use window::{Average, Peak};

/// What prefill workers have to do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PrefillLoad {
    /// Workers that take prompts.
    pub workers: u32,
    /// Those of them that compute now.
    pub busy: u32,
    /// Prompt tokens that are not computed yet: at workers, and in requests that no worker has.
    pub tokens: u64,
    /// What one worker computes a second, as measured; 0 before the first prompt.
    pub tokens_per_second: f64,
    /// Sequences of decode: prompts that were computed between two looks, and that are computed again if their worker dies.
    pub sequences: u64,
}

/// What decode workers have to do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DecodeLoad {
    /// Workers that take sequences.
    pub workers: u32,
    /// Sequences that they hold or will, and those in requests that no worker has.
    pub sequences: u64,
    /// Sequences that one worker can hold; 0 where there is none to ask.
    pub slots: u32,
    /// The share of their latent pages that is taken, of all workers together, 0 to 1.
    pub pages: f64,
    /// Seconds a step takes at the worker that is slowest; 0 before the first.
    pub itl: f64,
}

/// What a role has to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    Prefill(PrefillLoad),
    Decode(DecodeLoad),
}

/// What of a worker is asked for where nobody has measured what one can do.
const UNMEASURED: f64 = 1000.0;
/// Sequences that a worker is taken to hold where there is none to ask.
const SLOTS: u32 = 16;
/// Those that stay must be this far below their target, or nobody goes: else who left would be called back.
const MARGIN: f64 = 0.9;

/// The answer for one role and one way to ask.
#[derive(Clone, Debug)]
pub struct Scaler {
    settings: Settings,
    busy: Average,
    peak: Peak,
    last_work: Option<Instant>,
    begun: bool,
    now: Answer,
    rate: f64,
    slots: u32,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Answer {
    /// Workers.
    pub workers: u32,
    /// Whether there is, or was lately, anything to do.
    pub active: bool,
}

impl Scaler {
    pub fn new(settings: Settings) -> Self {
        Self {
            busy: Average::over(settings.window),
            peak: Peak::over(settings.hold),
            last_work: None,
            begun: false,
            now: Answer::default(),
            rate: 0.0,
            slots: 0,
            settings,
        }
    }

    /// The load as it is now.
    pub fn observe(&mut self, load: Load, now: Instant) {
        let (needed, current, works) = match (load, self.settings.role) {
            (Load::Prefill(load), Role::Prefill(target)) => {
                let works = load.tokens > 0 || load.busy > 0 || load.sequences > 0;
                (self.prefill(load, target, now), load.workers, works)
            }
            (Load::Decode(load), Role::Decode(target)) => {
                (self.decode(load, target, now), load.workers, load.sequences > 0)
            }
            _ => return,
        };
        // Whoever is there when this begins was needed, for all that is known.
        let first = !std::mem::replace(&mut self.begun, true);
        if first {
            self.peak.observe(current, now);
        }
        if works || (first && current > 0) {
            self.last_work = Some(now);
        }
        let idle = self.last_work.map(|at| now.saturating_duration_since(at));
        let active = idle.is_some_and(|idle| idle < self.settings.hold.max(Duration::from_secs(1)));
        let whole = if active { self.steady(needed, current).max(1) } else { 0 };
        let held = self.peak.observe(whole, now);
        let workers = if active { held.saturating_add(self.settings.spares) } else { 0 };
        self.now = Answer { workers, active };
    }

    /// What is asked for since the last load.
    pub fn answer(&self) -> Answer {
        self.now
    }

    /// Workers that prompts keep busy, or that would have computed what waits in time.
    fn prefill(&mut self, load: PrefillLoad, target: Prefill, now: Instant) -> f64 {
        if load.tokens_per_second > 0.0 {
            self.rate = load.tokens_per_second;
        }
        let rate = if self.rate > 0.0 { self.rate } else { UNMEASURED };
        let backlog = load.tokens as f64 / rate;
        let busy = self.busy.observe(f64::from(load.busy), now);
        (backlog / target.seconds).max(busy / target.busy)
    }

    /// Workers whose rooms would be used to the target, and whose steps would be as fast as they should.
    fn decode(&mut self, load: DecodeLoad, target: Decode, now: Instant) -> f64 {
        if load.slots > 0 {
            self.slots = load.slots;
        }
        let slots = if self.slots > 0 { self.slots } else { SLOTS };
        let rooms = load.sequences as f64 / f64::from(slots);
        let pages = load.pages * f64::from(load.workers);
        let used = self.busy.observe(rooms.max(pages), now).max(rooms);
        let slow = match target.itl {
            Some(itl) if load.itl > itl.as_secs_f64() => {
                f64::from(load.workers) * load.itl / itl.as_secs_f64()
            }
            _ => 0.0,
        };
        (used / target.rooms).max(slow)
    }

    /// Whole workers: more at once, fewer only where those that stay have room.
    fn steady(&self, needed: f64, current: u32) -> u32 {
        let up = whole(needed);
        if up >= current { up } else { whole(needed / MARGIN).min(current) }
    }
}

/// The workers that cover `needed`; rounding errors do not ask for one.
fn whole(needed: f64) -> u32 {
    (needed - 1e-9).ceil().clamp(0.0, f64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests;
