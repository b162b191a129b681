//! When things happened to one request, and when it is late. Pure: the time comes in.

use std::time::Duration;

use proto::v1::Timing;
use tokio::time::Instant;

use crate::admission::Arrival;

/// A decode worker that has the state and draws no token for so long is taken for lost.
const STALL: Duration = Duration::from_secs(30);

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
            delivered: None,
            worker_queue: 0.0,
            prefill: 0.0,
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// When to look whether something is wrong, if nothing is heard before.
    pub(super) fn alarm_at(&self) -> Instant {
        if self.is_committed() { self.deadline.min(self.heard + STALL) } else { self.deadline }
    }

    pub(super) fn is_committed(&self) -> bool {
        self.committed.is_some()
    }

    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    pub(super) fn restarted(&mut self, began: Instant) {
        self.began = began;
        self.heard = began;
        self.prefilled = None;
        self.committed = None;
    }

    /// True for the request's very first token.
    pub(super) fn first_token(&mut self, now: Instant, queue_seconds: f64, prefill_seconds: f64) -> bool {
        self.prefilled = Some(now);
        self.worker_queue = queue_seconds;
        self.prefill = prefill_seconds;
        let first = self.first_token.is_none();
        self.first_token.get_or_insert(now);
        first
    }

    pub(super) fn committed(&mut self, now: Instant) {
        self.committed = Some(now);
    }

    /// Notes a delivery; the time since the one before.
    pub(super) fn delivered(&mut self, now: Instant) -> Option<Duration> {
        self.delivered.replace(now).map(|before| now.saturating_duration_since(before))
    }

    pub(super) fn timing(&self, now: Instant) -> Timing {
        let seconds = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64();
        let transfer = self.prefilled.zip(self.committed).map_or(0.0, |(from, to)| seconds(from, to));
        Timing {
            queue: seconds(self.arrived, self.began) + self.worker_queue,
            prefill: self.prefill,
            transfer,
            first_token: seconds(self.arrived, self.first_token.unwrap_or(now)),
            total: seconds(self.arrived, now),
            ..Timing::default()
        }
    }
}
