use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::Reservation;
use kvxfer::{
    Expected, Incarnation, Layout, Manifest, Meters, Reason, Receipt, Secret, TicketBook, TicketId,
};
use tokio::sync::watch;

use crate::error::Error;
use crate::ledger::{Failure, Handed, Ledger, Secrets};
use crate::room::{Filled, Room};

/// The tickets of this worker: a [`Ledger`] of engine room, and a bell for whoever waits. Clones are the same book.
#[derive(Clone, Debug)]
pub(crate) struct Book {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    ledger: Mutex<Ledger<Reservation, Filled>>,
    /// Rings after every change that someone may wait for.
    changed: watch::Sender<()>,
    incarnation: Incarnation,
    layout: Layout,
    meters: Meters,
}

impl Book {
    pub(crate) fn new(lease: Duration, incarnation: Incarnation, layout: Layout, meters: Meters) -> Book {
        let shared = Shared {
            ledger: Mutex::new(Ledger::new(lease)),
            changed: watch::Sender::new(()),
            incarnation,
            layout,
            meters,
        };
        Book { shared: Arc::new(shared) }
    }

    pub(crate) fn reserve(&self, id: TicketId, secrets: Secrets, state_pos: u32, room: Reservation) {
        self.ledger().reserve(id, secrets, state_pos, room, now());
        self.shared.changed.send_replace(());
    }

    /// The ticket's committed state as soon as it is there. Dropping the result, or this call, releases the ticket.
    pub(crate) fn attach(&self, id: TicketId, secret: &Secret) -> Result<Attached, Error> {
        if self.ledger().attach(&id, secret) {
            Ok(Attached { book: self.clone(), id })
        } else {
            Err(Error::UnknownTicket)
        }
    }

    pub(crate) fn release(&self, id: &TicketId) {
        // freed after the lock is: the engine's pool has its own
        let freed = self.ledger().release(id, now());
        drop(freed);
        self.shared.changed.send_replace(());
    }

    pub(crate) fn commit(&self, id: &TicketId, filled: Filled, receipt: Receipt) -> Result<(), Reason> {
        let committed = self.ledger().commit(id, filled, receipt, now());
        self.shared.changed.send_replace(());
        committed.map_err(|(filled, reason)| {
            drop(filled);
            reason
        })
    }

    /// Ends leases that run out, for ever.
    pub(crate) async fn keep_time(&self) {
        let mut changed = self.shared.changed.subscribe();
        loop {
            let next = self.ledger().deadline();
            let late = async {
                match next {
                    Some(next) => tokio::time::sleep_until(next.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = late => {
                    let freed = self.ledger().expire(now());
                    drop(freed);
                    self.shared.changed.send_replace(());
                }
                // the sender lives in self
                _ = changed.changed() => {}
            }
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger<Reservation, Filled>> {
        // no code that can panic runs under the lock
        self.shared.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The right to a ticket's tokens. Dropping it releases the ticket.
#[derive(Debug)]
pub(crate) struct Attached {
    book: Book,
    id: TicketId,
}

impl Attached {
    /// Waits for the commit.
    pub(crate) async fn handed(&self) -> Result<(Filled, Receipt), Error> {
        let mut changed = self.book.shared.changed.subscribe();
        loop {
            let handed = self.book.ledger().take(&self.id);
            match handed {
                Handed::Here(filled, receipt) => return Ok((filled, receipt)),
                Handed::Failed(failure) => return Err(failure.into()),
                Handed::Gone => return Err(Error::UnknownTicket),
                Handed::NotYet => {}
            }
            // the sender lives in self
            let _ = changed.changed().await;
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.book.release(&self.id);
    }
}

impl TicketBook for Book {
    type Sink = Room;

    fn look_up(&self, id: &TicketId) -> Option<Expected> {
        let (secret, state_pos, committed) = self.ledger().expected(id)?;
        let Shared { incarnation, layout, .. } = &*self.shared;
        Some(Expected { secret, incarnation: *incarnation, layout: *layout, state_pos, committed })
    }

    fn open(&self, id: &TicketId) -> Result<Room, Reason> {
        let (reservation, state_pos) = self.ledger().open(id, now())?;
        let Shared { layout, meters, .. } = &*self.shared;
        Ok(Room::new(self.clone(), *id, Manifest::new(*layout, state_pos), reservation, meters.clone()))
    }

    fn renew(&self, id: &TicketId) {
        self.ledger().renew(id, now());
    }

    async fn revoked(&self, id: &TicketId) -> Reason {
        let mut changed = self.shared.changed.subscribe();
        loop {
            if let Some(reason) = self.ledger().revoked(id) {
                return reason;
            }
            // the sender lives in self
            let _ = changed.changed().await;
        }
    }

    fn close(&self, id: &TicketId, end: &Result<Receipt, kvxfer::Error>) {
        if let Err(error) = end {
            let failure =
                Failure::Transfer { why: error.to_string(), worth_retrying: error.worth_retrying() };
            self.ledger().transfer_failed(id, failure, now());
            self.shared.changed.send_replace(());
        }
    }
}
