use std::time::Duration;

use bytes::Bytes;
use engine::Reservation;
use kvxfer::{BadSampling, Manifest, Meters, Reason, Receipt, SamplingState, SegmentId, Sink, TicketId};
use tokio::time::Instant;

use crate::book::Book;

mod gather;

use gather::{Run, Runs, StateParts};

/// Reserved room that a transfer fills: the sink of one ticket. Dropping it gives the room back.
#[derive(Debug)]
pub(crate) struct Room {
    book: Book,
    id: TicketId,
    manifest: Manifest,
    began: Option<Instant>,
    runs: Runs,
    state: StateParts,
    sampling: Option<SamplingState>,
    /// Taken by the commit.
    reservation: Option<Reservation>,
}

/// Room with a whole state in it.
#[derive(Debug)]
pub(crate) struct Filled {
    pub(crate) reservation: Reservation,
    pub(crate) sampling: SamplingState,
    /// Tokens that the state has consumed.
    pub(crate) state_pos: u32,
    /// From the first segment to the commit.
    pub(crate) took: Duration,
}

impl Room {
    pub(crate) fn new(
        book: Book,
        id: TicketId,
        manifest: Manifest,
        reservation: Reservation,
        meters: Meters,
    ) -> Room {
        let layout = *manifest.layout();
        Room {
            book,
            id,
            manifest,
            began: None,
            runs: Runs::new(layout, meters.clone()),
            state: StateParts::new(layout, meters),
            sampling: None,
            reservation: Some(reservation),
        }
    }
}

impl Room {
    /// Gives a whole run to the engine.
    async fn import(&self, run: Option<Run>) -> Result<(), Reason> {
        let (Some(run), Some(reservation)) = (run, &self.reservation) else { return Ok(()) };
        let Run { first_token, tokens, latents, keys } = run;
        let imported = reservation.import_latents(first_token, tokens, latents, keys).await;
        imported.map_err(|error| refused(&error))
    }
}

fn refused(error: &engine::Error) -> Reason {
    let fault = error.to_string();
    Reason::Sink { fault }
}

fn missing(part: &str) -> Reason {
    let missing = part.to_owned();
    Reason::Incomplete { missing }
}

impl Sink for Room {
    async fn accept(&mut self, id: SegmentId, payload: Bytes) -> Result<(), Reason> {
        self.began.get_or_insert_with(Instant::now);
        match id {
            SegmentId::Latents { layer, first_token, tokens } => {
                let run = self.runs.latents(layer, first_token, tokens, &payload)?;
                return self.import(run).await;
            }
            SegmentId::IndexKeys { layer, first_pool, pools } => {
                let run = self.runs.keys(layer, first_pool, pools, &payload)?;
                return self.import(run).await;
            }
            SegmentId::Recurrent { layer, first_head, .. } => {
                self.state.recurrent(layer, first_head, &payload);
            }
            SegmentId::Tail { layer, which, first_head, heads } => {
                self.state.tail(layer, which, first_head..first_head + heads, &payload);
            }
            SegmentId::IndexTail { layer } => self.state.index_tail(layer, &payload),
            SegmentId::Hidden => self.state.hidden(&payload),
            SegmentId::Sampling => {
                let read = SamplingState::decode(&payload, self.manifest.layout(), self.manifest.state_pos());
                let protocol = |bad: BadSampling| Reason::Protocol { fault: bad.to_string() };
                self.sampling = Some(read.map_err(protocol)?);
            }
        }
        Ok(())
    }

    async fn commit(&mut self, receipt: Receipt) -> Result<(), Reason> {
        if !self.runs.is_empty() {
            let fault = "index keys were cut otherwise than their latents".to_owned();
            return Err(Reason::Sink { fault });
        }
        let reservation = self.reservation.as_ref().ok_or_else(|| missing("room"))?;
        let (tokens, state) = (self.manifest.state_pos(), self.state.whole());
        reservation.import_state(tokens, state).await.map_err(|error| refused(&error))?;
        let reservation = self.reservation.take().ok_or_else(|| missing("room"))?;
        let sampling = self.sampling.take().ok_or_else(|| missing("sampling"))?;
        let took = self.began.map_or(Duration::ZERO, |began| began.elapsed());
        let filled = Filled { reservation, sampling, state_pos: self.manifest.state_pos(), took };
        self.book.commit(&self.id, filled, receipt)
    }
}
