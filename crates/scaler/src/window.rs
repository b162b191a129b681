use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A mean over time that forgets what is older than some windows.
#[derive(Clone, Debug)]
pub(crate) struct Average {
    window: Duration,
    value: f64,
    at: Option<Instant>,
}

impl Average {
    pub(crate) fn over(window: Duration) -> Self {
        Self { window, value: 0.0, at: None }
    }

    /// `value` holds since the last time.
    pub(crate) fn observe(&mut self, value: f64, now: Instant) -> f64 {
        let passed = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let keep = (-passed.as_secs_f64() / self.window.as_secs_f64()).exp();
        self.value = self.value * keep + value * (1.0 - keep);
        self.at = Some(now);
        self.value
    }
}

/// The largest of the last while.
#[derive(Clone, Debug)]
pub(crate) struct Peak {
    hold: Duration,
    /// Times and values, values falling.
    seen: VecDeque<(Instant, u32)>,
}

impl Peak {
    pub(crate) fn over(hold: Duration) -> Self {
        Self { hold, seen: VecDeque::new() }
    }

    pub(crate) fn observe(&mut self, value: u32, now: Instant) -> u32 {
        while self.seen.back().is_some_and(|(_, last)| *last <= value) {
            self.seen.pop_back();
        }
        self.seen.push_back((now, value));
        while self.seen.len() > 1
            && self.seen.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > self.hold)
        {
            self.seen.pop_front();
        }
        self.seen.front().map_or(value, |(_, largest)| *largest)
    }
}
