//! What becomes of a request that a worker failed. Pure: a failure and the time go in, what to do next comes out.
//!
//! Three bounds keep a request from going round for ever: how often it is placed again, how many workers die under it (one
//! that kills whatever serves it must not take down all), and how long it waits for workers to come back.

use std::time::Duration;

use bytes::Bytes;
use proto::v1::{ErrorReason, Role};
use tokio::time::Instant;

use crate::error::Error;
use crate::placement::Avoid;

/// A worker that was lost, yet is still a member after so long, was only cut off: a dead one's membership has ended by then.
const CUT_OFF: Duration = Duration::from_secs(6);
/// Failures that no death explains are answered more slowly each time.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A start that draws so many tokens before its workers die is no sign that the request kills them: what is deadly at some
/// token is so again right after it is resumed.
const PROGRESS: u32 = 16;

/// How much is done for one request.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How often it is placed again.
    pub retries: u32,
    /// How many workers it may lose in a row, without getting on; with one more it is taken for the cause.
    pub losses: u32,
    /// How long it waits for a worker when those it needs are gone.
    pub wait: Duration,
}

/// How far a request had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Room was asked for; no worker has seen the request itself.
    Reserving,
    /// Both workers had it, and drew so many tokens.
    Running { drawn: u32 },
}

/// Why a request is on no workers.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There is no pair to place it on. `served`: there has been one, or it brings one.
    Unplaced { error: Error, served: bool },
    /// One of its workers failed it.
    Workers { stage: Stage, prefill: Bytes, decode: Bytes, error: Error },
}

/// What to do with it.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    /// Place it then.
    Place { at: Instant },
    /// Place it when the fleet changes, or then.
    Wait { until: Instant },
    /// Its end.
    GiveUp(Error),
}

/// A worker that was lost under the request.
#[derive(Debug)]
enum Loss {
    /// Its connection broke: it died, unless it turns out to be a member later.
    Silent(Bytes),
    /// It lives, and said itself that it lost what it held.
    Told,
}

/// The record of one request's failures.
#[derive(Debug)]
pub(crate) struct Recovery {
    bounds: Bounds,
    deadline: Instant,
    failed: u32,
    /// In a row, without getting on.
    losses: Vec<Loss>,
    /// Failures in a row that killed nobody.
    mild: u32,
    lost: Vec<(Bytes, Instant)>,
    tried: Vec<Bytes>,
    waiting_since: Option<Instant>,
    cause: Option<Error>,
}

impl Recovery {
    pub(crate) fn new(bounds: Bounds, deadline: Instant) -> Self {
        Self {
            bounds,
            deadline,
            failed: 0,
            losses: Vec::new(),
            mild: 0,
            lost: Vec::new(),
            tried: Vec::new(),
            waiting_since: None,
            cause: None,
        }
    }

    /// The present start, counted from 1.
    pub(crate) fn attempt(&self) -> u32 {
        self.failed + 1
    }

    /// How often workers failed it.
    pub(crate) fn migrations(&self) -> u32 {
        self.failed
    }

    /// Why it has to be placed again.
    pub(crate) fn cause(&self) -> Option<&Error> {
        self.cause.as_ref()
    }

    /// Workers that it should not be placed on now.
    pub(crate) fn avoid(&self, now: Instant) -> Avoid {
        let mut avoid = Avoid { lost: Vec::new(), tried: self.tried.clone() };
        for (worker, at) in &self.lost {
            let list = if now >= *at + CUT_OFF { &mut avoid.tried } else { &mut avoid.lost };
            list.push(worker.clone());
        }
        avoid
    }

    /// What follows from a failure. `is_member`: whether a worker is one now.
    pub(crate) fn on(&mut self, failure: Failure, is_member: impl Fn(&Bytes) -> bool, now: Instant) -> Next {
        match failure {
            Failure::Unplaced { error, served } => self.unplaced(error, served, now),
            Failure::Workers { stage, prefill, decode, error } => {
                self.waiting_since = None;
                // When connections break on a machine that is too busy, nobody died.
                self.losses.retain(|loss| !matches!(loss, Loss::Silent(worker) if is_member(worker)));
                let lost = self.note(stage, [prefill, decode], &error, now);
                self.failed_by(error, lost, now)
            }
        }
    }

    fn unplaced(&mut self, error: Error, served: bool, now: Instant) -> Next {
        let may_come = match &error {
            Error::NoWorker { .. } => served || self.cause.is_some(),
            Error::Mismatch { .. } => self.cause.is_some(),
            _ => false,
        };
        let since = *self.waiting_since.get_or_insert(now);
        let late = since + self.bounds.wait;
        if !may_come {
            return Next::GiveUp(error);
        }
        if now >= self.deadline {
            return Next::GiveUp(Error::Deadline { stage: "waiting for a worker to come back" });
        }
        if now >= late {
            // That nobody is left says less than why somebody else had to be found.
            return Next::GiveUp(self.cause.take().unwrap_or(error));
        }
        let cut_off = self.lost.iter().map(|(_, at)| *at + CUT_OFF).filter(|at| *at > now).min();
        let until = late.min(self.deadline);
        Next::Wait { until: cut_off.map_or(until, |at| at.min(until)) }
    }

    fn failed_by(&mut self, error: Error, lost: bool, now: Instant) -> Next {
        if !may_retry(&error) {
            return Next::GiveUp(error);
        }
        if now >= self.deadline {
            return Next::GiveUp(Error::Deadline { stage: "a worker was lost" });
        }
        let losses = u32::try_from(self.losses.len()).unwrap_or(u32::MAX);
        if losses > self.bounds.losses {
            return Next::GiveUp(error.as_the_cause(losses));
        }
        if self.failed >= self.bounds.retries {
            return Next::GiveUp(error);
        }
        self.failed += 1;
        self.cause = Some(error);
        self.mild = if lost { 0 } else { self.mild + 1 };
        Next::Place { at: (now + self.pause()).min(self.deadline) }
    }

    fn pause(&self) -> Duration {
        match self.mild {
            0 | 1 => Duration::ZERO,
            more => LONGEST_PAUSE.min(FIRST_PAUSE * (1 << (more - 2).min(8))),
        }
    }

    /// Remembers who failed it; whether somebody is gone.
    fn note(&mut self, stage: Stage, [prefill, decode]: [Bytes; 2], error: &Error, now: Instant) -> bool {
        let pick = |role: Role| if role == Role::Prefill { prefill.clone() } else { decode.clone() };
        let under_it = matches!(stage, Stage::Running { .. });
        if matches!(stage, Stage::Running { drawn } if drawn >= PROGRESS) {
            self.losses.clear();
        }
        match error {
            Error::Lost { role, .. } => {
                self.losses.extend(under_it.then(|| Loss::Silent(pick(*role))));
                self.lost.push((pick(*role), now));
                true
            }
            Error::Worker { role, fault, .. } => match fault.reason {
                ErrorReason::StaleIncarnation => {
                    self.lost.push((pick(*role), now));
                    true
                }
                // What the worker says of itself: it lives, but its state is gone.
                ErrorReason::WorkerLost => {
                    self.losses.extend(under_it.then_some(Loss::Told));
                    self.tried.push(pick(*role));
                    false
                }
                // A transfer that failed may be either side's fault.
                ErrorReason::TransferFailed | ErrorReason::LeaseExpired | ErrorReason::UnknownTicket => {
                    self.tried.extend([prefill, decode]);
                    false
                }
                _ => {
                    self.tried.push(pick(*role));
                    false
                }
            },
            _ => false,
        }
    }
}

/// Whether the same request may succeed on other workers, or on the same ones a moment later.
fn may_retry(error: &Error) -> bool {
    match error {
        Error::Lost { .. } => true,
        Error::Worker { fault, .. } => matches!(
            fault.reason,
            ErrorReason::WorkerLost
                | ErrorReason::StaleIncarnation
                | ErrorReason::Draining
                | ErrorReason::NoRoom
                | ErrorReason::TransferFailed
                | ErrorReason::LeaseExpired
                | ErrorReason::UnknownTicket
                | ErrorReason::Cancelled
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
