//! From a placed request to two running calls: room at the decode worker first, then prefill and decode together.
//!
//! Also the place that knows what to do when a worker fails a request: start it again elsewhere, a bounded number of
//! times. The seed is part of the request, so every start draws the same tokens.

mod calls;
mod reservation;

use bytes::Bytes;
use proto::status::Fault;
use proto::v1::{ErrorReason, PrefillResponse, Role, RunResponse};
use tokio::time::Instant;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::admission::Admitted;
use crate::error::Error;
use crate::fleet::{Fleet, Placed, Seat};
use crate::metrics::Metrics;
use crate::placement::Avoid;

pub(crate) use calls::Call;
use reservation::{Reservation, reserve};

/// Starts requests. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Dispatch {
    fleet: Fleet,
    metrics: Metrics,
    drain: process::Drain,
    /// How often a request is started again at most.
    retries: u32,
}

/// How often and where a request was tried.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    /// Starts so far that failed.
    pub(crate) failed: u32,
    pub(crate) avoid: Avoid,
    cause: Option<Error>,
}

/// A request that could not go on, and why.
#[derive(Debug)]
pub(crate) struct Stranded {
    pub(crate) admitted: Box<Admitted>,
    pub(crate) error: Error,
}

/// A request with room reserved at decode and both calls under way. Dropping it cancels both and gives the room back.
#[derive(Debug)]
pub(crate) struct Decoding {
    pub(crate) placed: Placed,
    pub(crate) prefill: Call<PrefillResponse>,
    pub(crate) decode: Call<RunResponse>,
    /// When the calls began.
    pub(crate) began: Instant,
    reservation: Reservation,
}

impl Tries {
    /// The present start, counted from 1.
    pub(crate) fn attempt(&self) -> u32 {
        self.failed + 1
    }
}

impl Dispatch {
    pub(crate) fn new(fleet: Fleet, metrics: Metrics, drain: process::Drain, retries: u32) -> Self {
        Self { fleet, metrics, drain, retries }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Places and starts a request, again elsewhere when a worker fails it.
    pub(crate) async fn start(&self, admitted: Box<Admitted>) -> Result<Decoding, Error> {
        let mut admitted = admitted;
        loop {
            let placed = match self.fleet.place(admitted) {
                Ok(placed) => placed,
                Err(stranded) => {
                    admitted = self.again(stranded)?;
                    continue;
                }
            };
            match self.begin(placed).await {
                Ok(decoding) => return Ok(decoding),
                Err(stranded) => admitted = self.again(stranded)?,
            }
        }
    }

    /// Starts a stranded request once more, if its error allows that.
    pub(crate) async fn restart(&self, stranded: Stranded) -> Result<Decoding, Error> {
        let admitted = self.again(stranded)?;
        self.start(admitted).await
    }

    async fn begin(&self, placed: Placed) -> Result<Decoding, Stranded> {
        let reservation = match reserve(&placed, &self.drain).await {
            Ok(reservation) => reservation,
            Err(error) => return Err(placed.strand(error)),
        };
        let prefill = calls::prefill(&placed, reservation.ticket());
        let decode = calls::decode(&placed, reservation.ticket());
        Ok(Decoding { placed, prefill, decode, began: Instant::now(), reservation })
    }

    fn again(&self, stranded: Stranded) -> Result<Box<Admitted>, Error> {
        let Stranded { mut admitted, error } = stranded;
        let tries = &mut admitted.tries;
        if may_retry(&error) && tries.failed < self.retries && Instant::now() < admitted.arrival.deadline {
            tries.failed += 1;
            tracing::warn!(request = %admitted.request.id, attempt = tries.attempt(), %error, "starting again");
            tries.cause = Some(error);
            self.metrics.migrations.inc();
            return Ok(admitted);
        }
        // That nobody is left to try again says less than why it had to be tried again.
        let error = match (error, tries.cause.take()) {
            (Error::NoWorker { .. }, Some(cause)) => cause,
            (error, _) => error,
        };
        admitted.outcome.failed(&error);
        Err(error)
    }
}

impl Placed {
    /// Takes the request off its workers because of `error`, and remembers which of them failed it.
    pub(crate) fn strand(self, error: Error) -> Stranded {
        let Self { mut admitted, prefill, decode } = self;
        let avoid = &mut admitted.tries.avoid;
        if let Error::Worker { role, fault, .. } = &error {
            let failed = if *role == Role::Prefill { &prefill } else { &decode };
            match fault.reason {
                ErrorReason::WorkerLost | ErrorReason::StaleIncarnation => note(&mut avoid.lost, failed),
                // A transfer that failed may be either side's fault.
                ErrorReason::TransferFailed | ErrorReason::LeaseExpired | ErrorReason::UnknownTicket => {
                    note(&mut avoid.tried, &prefill);
                    note(&mut avoid.tried, &decode);
                }
                _ => note(&mut avoid.tried, failed),
            }
        }
        Stranded { admitted, error }
    }
}

impl Decoding {
    /// Ends both calls because of `error`; the request can be placed again.
    pub(crate) fn strand(self, error: Error) -> Stranded {
        self.placed.strand(error)
    }

    /// Decode has ended by itself: there is nothing to give back.
    pub(crate) fn settle(&mut self) {
        self.reservation.settle();
    }

    /// What a worker's status means for the request.
    pub(crate) fn worker_error(&self, role: Role, status: &Status) -> Error {
        worker_error(&self.placed, role, status)
    }

    /// A worker's stream ended, though the request had not.
    pub(crate) fn silent_end(&self, role: Role) -> Error {
        let fault = Fault::new(ErrorReason::WorkerLost, "its stream ended without an end");
        Error::Worker { role, worker: self.seat(role).record.name.clone(), fault }
    }

    /// A worker is connected, but says nothing.
    pub(crate) fn stalled(&self, role: Role) -> Error {
        let fault = Fault::new(ErrorReason::WorkerLost, "it made no progress");
        Error::Worker { role, worker: self.seat(role).record.name.clone(), fault }
    }

    fn seat(&self, role: Role) -> &Seat {
        if role == Role::Prefill { &self.placed.prefill } else { &self.placed.decode }
    }
}

fn note(list: &mut Vec<Bytes>, seat: &Seat) {
    list.push(seat.record.incarnation.clone());
}

/// A worker's status as this request's error. Workers give a reason with everything they say; a status without one
/// comes from the connection.
fn worker_error(placed: &Placed, role: Role, status: &Status) -> Error {
    if Instant::now() >= placed.admitted.arrival.deadline {
        return Error::Deadline { stage: "a worker was busy with it" };
    }
    let from_connection = status.get_error_details().error_info().is_none()
        && matches!(
            status.code(),
            Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled | Code::Aborted
        );
    let fault = if from_connection {
        Fault::new(ErrorReason::WorkerLost, format!("connection lost: {}", status.message()))
    } else {
        Fault::from_status(status)
    };
    let seat = if role == Role::Prefill { &placed.prefill } else { &placed.decode };
    Error::Worker { role, worker: seat.record.name.clone(), fault }
}

/// Whether the same request may succeed on other workers, or on the same ones a moment later.
fn may_retry(error: &Error) -> bool {
    let Error::Worker { fault, .. } = error else { return false };
    matches!(
        fault.reason,
        ErrorReason::WorkerLost
            | ErrorReason::StaleIncarnation
            | ErrorReason::Draining
            | ErrorReason::NoRoom
            | ErrorReason::TransferFailed
            | ErrorReason::LeaseExpired
            | ErrorReason::UnknownTicket
            | ErrorReason::Cancelled
    )
}
