//! The gate: how many requests are in flight at once, and who must wait or go.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use identity::Charge;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tracing::Span;

use crate::clients::Client;
use crate::error::Error;
use crate::metrics::{Metrics, Outcome};
use crate::recovery::{Bounds, Recovery};
use crate::request::Request;
use crate::status::Journal;
use crate::token_log::TokenLog;

/// Bounds of the gate.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests in flight at once, at least 1.
    pub in_flight: usize,
    /// Requests that may wait for a permit.
    pub waiting: usize,
    /// Longest wait for a permit.
    pub wait: Duration,
}

/// When a request came, how long it may take, and the span that tells its story.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub at: Instant,
    pub deadline: Instant,
    pub span: Span,
    pub client: Client,
}

impl Admitted {
    /// The request has used so many tokens more of its tenant's.
    pub(crate) fn used(&mut self, tokens: usize) {
        if let Some(charge) = &mut self.charge {
            charge.used(tokens as u64);
        }
    }
}

/// Lets requests in. Clones are the same gate.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    limits: Limits,
    bounds: Bounds,
    permits: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    metrics: Metrics,
    journal: Journal,
}

/// A request that may be served: it holds its permit until its stream is dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) request: Request,
    pub(crate) arrival: Arrival,
    pub(crate) recovery: Recovery,
    pub(crate) log: TokenLog,
    pub(crate) outcome: Outcome,
    charge: Option<Charge>,
    _permit: Permit,
}

#[derive(Debug)]
struct Permit {
    held: Gauge,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.held.dec();
    }
}

/// One of the waiting; dropping it takes it out of the count.
struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gate {
    pub(crate) fn new(limits: Limits, bounds: Bounds, metrics: Metrics, journal: Journal) -> Self {
        let permits = Arc::new(Semaphore::new(limits.in_flight));
        Self { limits, bounds, permits, waiting: Arc::default(), metrics, journal }
    }

    /// Waits for a permit, in order of arrival.
    pub(crate) async fn admit(
        &self,
        request: Request,
        arrival: Arrival,
        charge: Option<Charge>,
    ) -> Result<Box<Admitted>, Error> {
        let permit = match Arc::clone(&self.permits).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait(arrival.deadline).await?,
        };
        self.metrics.permits_held.inc();
        let permit = Permit { held: self.metrics.permits_held.clone(), _permit: permit };
        let recovery = Recovery::new(self.bounds, arrival.deadline);
        let story = self.journal.begin(&request, &arrival);
        let (log, outcome) = (TokenLog::default(), Outcome::of(&self.metrics, story));
        let mut admitted = Admitted { request, arrival, recovery, log, outcome, charge, _permit: permit };
        admitted.used(admitted.request.prompt.len());
        Ok(Box::new(admitted))
    }

    /// Requests that wait for a permit.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// From now on nobody is let in.
    pub(crate) fn close(&self) {
        self.permits.close();
    }

    async fn wait(&self, deadline: Instant) -> Result<OwnedSemaphorePermit, Error> {
        let overloaded = || Error::Overloaded { in_flight: self.limits.in_flight, waited: self.limits.wait };
        if self.permits.is_closed() {
            return Err(Error::Draining);
        }
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(Arc::clone(&self.waiting));
        if before >= self.limits.waiting {
            return Err(overloaded());
        }
        let until = deadline.min(Instant::now() + self.limits.wait);
        match timeout_at(until, Arc::clone(&self.permits).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) => Err(Error::Draining),
            Err(_) if until == deadline => Err(Error::Deadline { stage: "waiting to be admitted" }),
            Err(_) => Err(overloaded()),
        }
    }
}
