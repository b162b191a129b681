use std::time::Duration;

use crate::Pool;

#[cfg(test)]
mod tests;

/// How busy an engine is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Pages under no lease.
    pub free_pages: u32,
    /// Pages in the pool.
    pub pages: u32,
    /// Slots under no lease.
    pub free_slots: u32,
    /// Slots in the pool.
    pub slots: u32,
    /// Prompts that wait for room.
    pub waiting: u32,
    /// Prompts under way and answers under way.
    pub running: u32,
    /// Prompt tokens not yet computed.
    pub queued_tokens: u64,
    /// Prompt tokens computed per second of prefill steps, recently; 0 before the first.
    pub prefill_tokens_per_second: f64,
    /// Tokens drawn per second of decode steps, recently; 0 before the first.
    pub decode_tokens_per_second: f64,
    /// Seconds a decode step takes, recently; 0 before the first.
    pub decode_step_seconds: f64,
}

impl Load {
    /// With nothing to do.
    pub(crate) fn idle(pool: &Pool) -> Self {
        let shape = pool.shape();
        Self {
            free_pages: pool.free_pages(),
            pages: shape.pages,
            free_slots: pool.free_slots(),
            slots: shape.slots,
            ..Self::default()
        }
    }
}

/// An exponentially weighted mean of tokens per second and seconds per step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    tokens: f64,
    seconds: f64,
    steps: f64,
}

/// How much of the past one step leaves in place: about the last 20 steps count.
const KEEP: f64 = 0.95;

impl Rate {
    pub(crate) fn observe(&mut self, tokens: u32, took: Duration) {
        self.tokens = self.tokens * KEEP + f64::from(tokens);
        self.seconds = self.seconds * KEEP + took.as_secs_f64();
        self.steps = self.steps * KEEP + 1.0;
    }

    pub(crate) fn tokens_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.tokens / self.seconds } else { 0.0 }
    }

    pub(crate) fn step_seconds(&self) -> f64 {
        if self.steps > 0.0 { self.seconds / self.steps } else { 0.0 }
    }
}
