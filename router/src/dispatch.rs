//! From a placed request to two running calls: room at the decode worker first, then prefill and decode together.
//!
//! A request that a worker fails is placed again, as [`Recovery`](crate::recovery::Recovery) says. The output so far goes
//! along as the prompt's end, and the seed is part of the request, so what is drawn then is what would have been drawn.

mod calls;
mod reservation;

use bytes::Bytes;
use proto::status::Fault;
use proto::v1::{PrefillResponse, Role, RunResponse};
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::admission::Admitted;
use crate::error::Error;
use crate::fleet::{Fleet, News, Placed, Seat};
use crate::metrics::Metrics;
use crate::recovery::{Failure, Next, Stage};
use crate::scaling::Demand;
use crate::status::Story;
use crate::token_log::TokenLog;

pub(crate) use calls::Call;
use reservation::{Reservation, reserve};

/// Starts requests. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Dispatch {
    fleet: Fleet,
    metrics: Metrics,
    demand: Demand,
    drain: process::Drain,
}

/// A request that could not go on, and why.
#[derive(Debug)]
pub(crate) struct Stranded {
    pub(crate) admitted: Box<Admitted>,
    pub(crate) failure: Box<Failure>,
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

impl Dispatch {
    pub(crate) fn new(fleet: Fleet, metrics: Metrics, demand: Demand, drain: process::Drain) -> Self {
        Self { fleet, metrics, demand, drain }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The workers that there are.
    pub(crate) fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Places and starts a request, again elsewhere when a worker fails it.
    pub(crate) async fn start(&self, admitted: Box<Admitted>) -> Result<Decoding, Error> {
        let mut admitted = admitted;
        loop {
            let mut news = self.fleet.news();
            let stranded = match self.fleet.place(admitted) {
                Ok(placed) => match self.begin(placed).await {
                    Ok(decoding) => return Ok(decoding),
                    Err(stranded) => stranded,
                },
                Err(stranded) => stranded,
            };
            admitted = self.again(stranded, &mut news).await?;
        }
    }

    /// Starts a stranded request once more, if what failed it allows that.
    pub(crate) async fn restart(&self, stranded: Stranded) -> Result<Decoding, Error> {
        let mut news = self.fleet.news();
        let (request, log) = (&stranded.admitted.request, &stranded.admitted.log);
        let _wanting = self.demand.of(log.prompt_tokens(request));
        let admitted = self.again(stranded, &mut news).await?;
        self.start(admitted).await
    }

    async fn begin(&self, placed: Placed) -> Result<Decoding, Stranded> {
        let (story, migrations) = (placed.story().clone(), placed.admitted.recovery.migrations());
        story.placed(&placed.prefill.record, &placed.decode.record, migrations, Instant::now());
        let reservation = match reserve(&placed, &self.drain).await {
            Ok(reservation) => reservation,
            Err(error) => return Err(placed.strand(Stage::Reserving, error)),
        };
        let prefill = calls::prefill(&placed, reservation.ticket());
        let decode = calls::decode(&placed, reservation.ticket());
        let began = Instant::now();
        story.began(began);
        Ok(Decoding { placed, prefill, decode, began, reservation })
    }

    /// Waits until a stranded request may be placed again.
    async fn again(&self, stranded: Stranded, news: &mut News) -> Result<Box<Admitted>, Error> {
        let Stranded { mut admitted, failure } = stranded;
        let is_member = |worker: &Bytes| !self.fleet.has_left(worker);
        match admitted.recovery.on(*failure, is_member, Instant::now()) {
            Next::Place { at } => {
                let recovery = &admitted.recovery;
                let (request, attempt, drawn) =
                    (&admitted.request.id, recovery.attempt(), admitted.log.len());
                let cause = recovery.cause().map(tracing::field::display);
                tracing::warn!(request, attempt, drawn, cause, "starting again");
                self.metrics.migrations.inc();
                sleep_until(at).await;
                Ok(admitted)
            }
            Next::Wait { until } => {
                // Sooner or later something has changed, and whether it helps is seen by placing.
                let _late = timeout_at(until, news.wait()).await;
                Ok(admitted)
            }
            Next::GiveUp(error) => {
                admitted.outcome.failed(&error);
                Err(error)
            }
        }
    }
}

impl Placed {
    /// What is written down of the request.
    pub(crate) fn story(&self) -> &Story {
        self.admitted.outcome.story()
    }

    /// Takes the request off its workers because of `error`.
    fn strand(self, stage: Stage, error: Error) -> Stranded {
        let Self { admitted, prefill, decode, span } = self;
        span.record("error", tracing::field::display(&error));
        admitted.outcome.story().interrupted();
        let incarnation = |seat: &Seat| seat.record.incarnation.clone();
        let (prefill, decode) = (incarnation(&prefill), incarnation(&decode));
        Stranded { admitted, failure: Box::new(Failure::Workers { stage, prefill, decode, error }) }
    }
}

impl Decoding {
    /// Ends both calls because of `error`; the request can be placed again, to go on after `output`.
    pub(crate) fn strand(self, error: Error, output: &[u32]) -> Stranded {
        let mut placed = self.placed;
        let before = placed.admitted.log.len();
        placed.admitted.log = TokenLog::new(output, placed.decode.record.fingerprint.as_ref());
        let drawn = placed.admitted.log.len().saturating_sub(before);
        placed.strand(Stage::Running { drawn }, error)
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
        self.lost(role, "its stream ended without an end")
    }

    /// A worker is connected, but says nothing.
    pub(crate) fn stalled(&self, role: Role) -> Error {
        self.lost(role, "it made no progress")
    }

    /// Which worker that is still needed is no member any more.
    pub(crate) fn who_left(&self, fleet: &Fleet) -> Option<Role> {
        let left = |role: Role| fleet.has_left(&self.seat(role).record.incarnation);
        match () {
            () if left(Role::Decode) => Some(Role::Decode),
            () if !self.prefill.is_over() && left(Role::Prefill) => Some(Role::Prefill),
            () => None,
        }
    }

    fn lost(&self, role: Role, why: &str) -> Error {
        Error::Lost { role, worker: self.seat(role).record.name.clone(), why: why.to_owned() }
    }

    fn seat(&self, role: Role) -> &Seat {
        if role == Role::Prefill { &self.placed.prefill } else { &self.placed.decode }
    }
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
    let seat = if role == Role::Prefill { &placed.prefill } else { &placed.decode };
    let worker = seat.record.name.clone();
    if from_connection {
        return Error::Lost { role, worker, why: format!("connection lost: {}", status.message()) };
    }
    Error::Worker { role, worker, fault: Fault::from_status(status) }
}
