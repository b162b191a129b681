use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use super::state::{LAYOUT, STATE_POS, Units, ticket};
use crate::ends::{Sink, TicketBook};
use crate::error::Error;
use crate::reason::Reason;
use crate::segment::SegmentId;
use crate::ticket::{Expected, Receipt, TicketId};

/// A receiver with one ticket.
#[derive(Debug)]
pub(super) struct OneTicket {
    pub(super) id: TicketId,
    pub(super) expected: Mutex<Expected>,
    pub(super) place: Arc<Place>,
    /// How long the sink takes for a segment.
    pub(super) slowness: Duration,
    /// The sink refuses this one.
    pub(super) refuses: Option<SegmentId>,
    pub(super) lease_ended: watch::Sender<bool>,
    pub(super) closed: Mutex<Option<Result<Receipt, String>>>,
}

/// What the room behind the ticket went through.
#[derive(Debug, Default)]
pub(super) struct Place {
    pub(super) sunk: Mutex<Units>,
    pub(super) receipt: Mutex<Option<Receipt>>,
    opened: watch::Sender<u32>,
    freed: watch::Sender<u32>,
    pub(super) committing: watch::Sender<bool>,
}

impl OneTicket {
    pub(super) fn new() -> OneTicket {
        let ticket = ticket();
        let expected = Expected {
            secret: ticket.secret,
            incarnation: ticket.incarnation,
            layout: LAYOUT,
            state_pos: STATE_POS,
            committed: None,
        };
        OneTicket {
            id: ticket.id,
            expected: Mutex::new(expected),
            place: Arc::default(),
            slowness: Duration::ZERO,
            refuses: None,
            lease_ended: watch::Sender::new(false),
            closed: Mutex::default(),
        }
    }

    /// Expects a state of another size.
    pub(super) fn of(layout: crate::Layout, state_pos: u32) -> OneTicket {
        let book = OneTicket::new();
        {
            let mut expected = book.expected.lock().unwrap();
            expected.layout = layout;
            expected.state_pos = state_pos;
        }
        book
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }
}

impl Place {
    pub(super) fn freed(&self) -> bool {
        *self.opened.borrow() == *self.freed.borrow()
    }
}

pub(super) struct Room {
    place: Arc<Place>,
    slowness: Duration,
    refuses: Option<SegmentId>,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.place.freed.send_modify(|freed| *freed += 1);
    }
}

impl Sink for Room {
    async fn accept(&mut self, id: SegmentId, payload: Bytes) -> Result<(), Reason> {
        if self.refuses == Some(id) {
            return Err(Reason::Sink { fault: "full".to_owned() });
        }
        if !self.slowness.is_zero() {
            tokio::time::sleep(self.slowness).await;
        }
        self.place.sunk.lock().unwrap().add(id, &payload);
        Ok(())
    }

    async fn commit(&mut self, receipt: Receipt) -> Result<(), Reason> {
        *self.place.receipt.lock().unwrap() = Some(receipt);
        self.place.committing.send_replace(true);
        tokio::time::sleep(self.slowness).await;
        Ok(())
    }
}

impl TicketBook for OneTicket {
    type Sink = Room;

    fn look_up(&self, id: &TicketId) -> Option<Expected> {
        let mut expected = self.expected.lock().unwrap().clone();
        expected.committed = *self.place.receipt.lock().unwrap();
        (*id == self.id).then_some(expected)
    }

    fn open(&self, _: &TicketId) -> Result<Room, Reason> {
        if *self.place.opened.borrow() > 0 {
            return Err(Reason::TicketUsed);
        }
        self.place.opened.send_modify(|opened| *opened += 1);
        Ok(Room { place: Arc::clone(&self.place), slowness: self.slowness, refuses: self.refuses })
    }

    fn renew(&self, _: &TicketId) {}

    async fn revoked(&self, _: &TicketId) -> Reason {
        let mut ended = self.lease_ended.subscribe();
        ended.wait_for(|ended| *ended).await.unwrap();
        Reason::LeaseExpired
    }

    fn close(&self, _: &TicketId, end: &Result<Receipt, Error>) {
        let end = end.as_ref().map(|receipt| *receipt).map_err(ToString::to_string);
        *self.closed.lock().unwrap() = Some(end);
    }
}
