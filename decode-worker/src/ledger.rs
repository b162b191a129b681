use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kvxfer::{Reason, Receipt, Secret, TicketId};

#[cfg(test)]
mod tests;

/// Every ticket this worker has issued and what became of it. Pure: the time comes in, what is no longer held goes out.
///
/// ```text
/// Reserved -> Transferring -> Committed -> Decoding -> Over
///     \____________|_____________|______-> Failed        (lease, transfer)
/// ```
///
/// Releasing a ticket ends it from any stage. `R` is room for one sequence, `H` the same room with the state in it.
#[derive(Debug)]
pub(crate) struct Ledger<R, H> {
    lease: Duration,
    tickets: BTreeMap<TicketId, Entry<R, H>>,
}

#[derive(Debug)]
struct Entry<R, H> {
    secrets: Secrets,
    state_pos: u32,
    /// Somebody waits for its tokens.
    attached: bool,
    stage: Stage<R, H>,
}

/// What proves that somebody was given a ticket.
#[derive(Clone, Debug)]
pub(crate) struct Secrets {
    /// Whoever waits for its tokens.
    pub(crate) ticket: Secret,
    /// Its sender: the ticket's, bound to both ends.
    pub(crate) transfer: Secret,
}

#[derive(Debug)]
enum Stage<R, H> {
    Reserved {
        room: R,
        until: Instant,
    },
    /// The room is with the transfer.
    Transferring {
        until: Instant,
    },
    Committed {
        handed: H,
        receipt: Receipt,
        until: Instant,
    },
    /// The room is with the answer.
    Decoding {
        receipt: Receipt,
    },
    /// Remembered for whoever asks.
    Failed {
        failure: Failure,
        until: Instant,
    },
    /// Remembered for a sender that lost the answer to its commit.
    Over {
        receipt: Receipt,
        until: Instant,
    },
}

/// Why a ticket came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    LeaseExpired,
    Transfer { why: String, worth_retrying: bool },
}

/// Room that a ticket held and holds no more.
#[derive(Debug)]
pub(crate) enum Freed<R, H> {
    Empty(R),
    Filled(H),
}

/// What there is for whoever waits for a ticket's tokens.
#[derive(Debug)]
pub(crate) enum Handed<H> {
    NotYet,
    Here(H, Receipt),
    Failed(Failure),
    /// Unknown, or taken already.
    Gone,
}

/// How long an ended ticket is remembered.
const REMEMBERED: Duration = Duration::from_secs(30);

impl<R, H> Ledger<R, H> {
    pub(crate) fn new(lease: Duration) -> Ledger<R, H> {
        Ledger { lease, tickets: BTreeMap::new() }
    }

    pub(crate) fn reserve(&mut self, id: TicketId, secrets: Secrets, state_pos: u32, room: R, now: Instant) {
        let until = now + self.lease;
        let stage = Stage::Reserved { room, until };
        let entry = Entry { secrets, state_pos, attached: false, stage };
        self.tickets.insert(id, entry);
    }

    /// What a sender must know and bring, and the receipt if the hand-over was committed.
    pub(crate) fn expected(&self, id: &TicketId) -> Option<(Secret, u32, Option<Receipt>)> {
        let entry = self.tickets.get(id)?;
        let receipt = match &entry.stage {
            Stage::Committed { receipt, .. } | Stage::Decoding { receipt } | Stage::Over { receipt, .. } => {
                Some(*receipt)
            }
            Stage::Reserved { .. } | Stage::Transferring { .. } | Stage::Failed { .. } => None,
        };
        Some((entry.secrets.transfer.clone(), entry.state_pos, receipt))
    }

    /// Hands the room to a transfer, once; also the position of the state that it must bring.
    pub(crate) fn open(&mut self, id: &TicketId, now: Instant) -> Result<(R, u32), Reason> {
        let entry = self.tickets.get_mut(id).ok_or(Reason::UnknownTicket)?;
        let until = now + self.lease;
        match std::mem::replace(&mut entry.stage, Stage::Transferring { until }) {
            Stage::Reserved { room, until } if now < until => Ok((room, entry.state_pos)),
            stage @ Stage::Reserved { .. } => {
                entry.stage = stage;
                Err(Reason::LeaseExpired)
            }
            stage @ (Stage::Transferring { .. }
            | Stage::Committed { .. }
            | Stage::Decoding { .. }
            | Stage::Failed { .. }
            | Stage::Over { .. }) => {
                entry.stage = stage;
                Err(Reason::TicketUsed)
            }
        }
    }

    /// The transfer makes progress.
    pub(crate) fn renew(&mut self, id: &TicketId, now: Instant) {
        if let Some(Entry { stage: Stage::Transferring { until }, .. }) = self.tickets.get_mut(id) {
            *until = now + self.lease;
        }
    }

    /// The transfer has brought everything.
    pub(crate) fn commit(
        &mut self,
        id: &TicketId,
        handed: H,
        receipt: Receipt,
        now: Instant,
    ) -> Result<(), (H, Reason)> {
        let lease = self.lease;
        match self.tickets.get_mut(id).map(|entry| &mut entry.stage) {
            Some(stage @ Stage::Transferring { .. }) => {
                if let Stage::Transferring { until } = stage
                    && now >= *until
                {
                    return Err((handed, Reason::LeaseExpired));
                }
                let until = now + lease;
                *stage = Stage::Committed { handed, receipt, until };
                Ok(())
            }
            Some(Stage::Failed { failure: Failure::LeaseExpired, .. }) => Err((handed, Reason::LeaseExpired)),
            Some(
                Stage::Reserved { .. }
                | Stage::Committed { .. }
                | Stage::Decoding { .. }
                | Stage::Failed { .. }
                | Stage::Over { .. },
            ) => Err((handed, Reason::TicketUsed)),
            None => Err((handed, Reason::Cancelled)),
        }
    }

    /// The transfer ended without a commit, its room dropped.
    pub(crate) fn transfer_failed(&mut self, id: &TicketId, failure: Failure, now: Instant) {
        if let Some(Entry { stage: stage @ Stage::Transferring { .. }, .. }) = self.tickets.get_mut(id) {
            let until = now + REMEMBERED;
            *stage = Stage::Failed { failure, until };
        }
    }

    /// Why a transfer under way is worth nothing any more, if it is not.
    pub(crate) fn revoked(&self, id: &TicketId) -> Option<Reason> {
        match self.tickets.get(id).map(|entry| &entry.stage) {
            Some(Stage::Transferring { .. } | Stage::Committed { .. } | Stage::Decoding { .. }) => None,
            Some(Stage::Failed { failure: Failure::LeaseExpired, .. }) => Some(Reason::LeaseExpired),
            Some(Stage::Reserved { .. } | Stage::Failed { .. } | Stage::Over { .. }) | None => {
                Some(Reason::Cancelled)
            }
        }
    }

    /// Lets one caller, who knows the secret, wait for the tokens.
    pub(crate) fn attach(&mut self, id: &TicketId, secret: &Secret) -> bool {
        match self.tickets.get_mut(id) {
            Some(entry) if entry.secrets.ticket == *secret && !entry.attached => {
                entry.attached = true;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Takes the committed state out.
    pub(crate) fn take(&mut self, id: &TicketId) -> Handed<H> {
        let Some(entry) = self.tickets.get_mut(id) else { return Handed::Gone };
        match &entry.stage {
            Stage::Reserved { .. } | Stage::Transferring { .. } => Handed::NotYet,
            Stage::Failed { failure, .. } => Handed::Failed(failure.clone()),
            Stage::Decoding { .. } | Stage::Over { .. } => Handed::Gone,
            Stage::Committed { receipt, .. } => {
                let receipt = *receipt;
                match std::mem::replace(&mut entry.stage, Stage::Decoding { receipt }) {
                    Stage::Committed { handed, .. } => Handed::Here(handed, receipt),
                    _ => Handed::Gone,
                }
            }
        }
    }

    /// Nobody wants this ticket any more. Idempotent.
    pub(crate) fn release(&mut self, id: &TicketId, now: Instant) -> Option<Freed<R, H>> {
        let entry = self.tickets.get_mut(id)?;
        let until = now + REMEMBERED;
        match &entry.stage {
            Stage::Over { .. } => None,
            Stage::Decoding { receipt } => {
                let receipt = *receipt;
                entry.stage = Stage::Over { receipt, until };
                None
            }
            Stage::Reserved { .. }
            | Stage::Transferring { .. }
            | Stage::Committed { .. }
            | Stage::Failed { .. } => freed(self.tickets.remove(id)?.stage),
        }
    }

    /// Ends what has run out.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<Freed<R, H>> {
        let mut all = Vec::new();
        self.tickets.retain(|_, entry| {
            if entry.stage.until().is_none_or(|until| now < until) {
                return true;
            }
            let ended = matches!(entry.stage, Stage::Failed { .. } | Stage::Over { .. });
            if !ended {
                let failed = Stage::Failed { failure: Failure::LeaseExpired, until: now + REMEMBERED };
                all.extend(freed(std::mem::replace(&mut entry.stage, failed)));
            }
            !ended
        });
        all
    }

    /// When [`Ledger::expire`] has something to do next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.tickets.values().filter_map(|entry| entry.stage.until()).min()
    }
}

impl<R, H> Stage<R, H> {
    fn until(&self) -> Option<Instant> {
        match self {
            Stage::Reserved { until, .. }
            | Stage::Transferring { until }
            | Stage::Committed { until, .. }
            | Stage::Failed { until, .. }
            | Stage::Over { until, .. } => Some(*until),
            Stage::Decoding { .. } => None,
        }
    }
}

fn freed<R, H>(stage: Stage<R, H>) -> Option<Freed<R, H>> {
    match stage {
        Stage::Reserved { room, .. } => Some(Freed::Empty(room)),
        Stage::Committed { handed, .. } => Some(Freed::Filled(handed)),
        Stage::Transferring { .. } | Stage::Decoding { .. } | Stage::Failed { .. } | Stage::Over { .. } => {
            None
        }
    }
}
