//! When things happened to one request, and when it is late. Pure: the time comes in.

use std::time::Duration;

use proto::v1::Timing;
use tokio::time::Instant;

use crate::admission::Arrival;

/// A decode worker that has the state and draws no token for so long is taken for lost.
const STALL: Duration = Duration::from_secs(30);
/// After so long without a word it is asked whether the worker is still a member.
const LONG: Duration = Duration::from_secs(5);

/// For how long no worker of a request has said anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    Short,
    /// Long enough to doubt a worker that is no member any more.
    Long,
    /// Longer than a step takes.
    Stall,
}

#[derive(Debug)]
pub(super) struct Clock {
    arrived: Instant,
    deadline: Instant,
    began: Instant,
    heard: Instant,
    first_token: Option<Instant>,
    /// First token of the present start, from which the transfer counts.
    prefilled: Option<Instant>,
    committed: Option<Instant>,
    /// Of the first start that came to a commit.
    transfer: Option<Duration>,
    /// When a worker failed it, until tokens come again.
    interrupted: Option<Instant>,
    delivered: Option<Instant>,
    worker_queue: f64,
    prefill: f64,
}

impl Clock {
    pub(super) fn new(arrival: &Arrival, began: Instant) -> Self {
        Self {
            arrived: arrival.at,
            deadline: arrival.deadline,
            began,
            heard: began,
            first_token: None,
            prefilled: None,
            committed: None,
            transfer: None,
            interrupted: None,
            delivered: None,
            worker_queue: 0.0,
            prefill: 0.0,
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// When to look next whether something is wrong, if nothing is heard before.
    pub(super) fn alarm_after(&self, now: Instant) -> Instant {
        let next = if self.silence(now) == Silence::Short { self.heard } else { now };
        self.deadline.min(next + LONG)
    }

    pub(super) fn silence(&self, now: Instant) -> Silence {
        match now.saturating_duration_since(self.heard) {
            silent if silent >= STALL && self.is_committed() => Silence::Stall,
            silent if silent >= LONG => Silence::Long,
            _ => Silence::Short,
        }
    }

    pub(super) fn is_committed(&self) -> bool {
        self.committed.is_some()
    }

    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// A worker has failed.
    pub(super) fn interrupted(&mut self, now: Instant) {
        self.transfer = self.transferred();
        self.interrupted.get_or_insert(now);
    }

    /// Others have begun. What was told of the first token stays.
    pub(super) fn restarted(&mut self, began: Instant) {
        if self.first_token.is_none() {
            self.began = began;
        }
        self.heard = began;
        self.prefilled = None;
        self.committed = None;
    }

    /// True for the request's very first token.
    pub(super) fn first_token(&mut self, now: Instant, queue_seconds: f64, prefill_seconds: f64) -> bool {
        self.prefilled = Some(now);
        let first = self.first_token.is_none();
        if first {
            self.first_token = Some(now);
            self.worker_queue = queue_seconds;
            self.prefill = prefill_seconds;
        }
        first
    }

    pub(super) fn committed(&mut self, now: Instant) {
        self.committed = Some(now);
    }

    /// Notes a delivery; the time since the one before.
    pub(super) fn delivered(&mut self, now: Instant) -> Option<Duration> {
        self.delivered.replace(now).map(|before| now.saturating_duration_since(before))
    }

    /// For how long no token came because of a failed worker; once, when they come again.
    pub(super) fn pause(&mut self, now: Instant) -> Option<Duration> {
        self.interrupted.take().map(|since| now.saturating_duration_since(since))
    }

    fn transferred(&self) -> Option<Duration> {
        let present = self.prefilled.zip(self.committed);
        self.transfer.or_else(|| present.map(|(from, to)| to.saturating_duration_since(from)))
    }

    pub(super) fn timing(&self, now: Instant) -> Timing {
        let seconds = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64();
        Timing {
            queue: seconds(self.arrived, self.began) + self.worker_queue,
            prefill: self.prefill,
            transfer: self.transferred().unwrap_or_default().as_secs_f64(),
            first_token: seconds(self.arrived, self.first_token.unwrap_or(now)),
            total: seconds(self.arrived, now),
            ..Timing::default()
        }
    }
}

#[cfg(test)]
mod tests;
