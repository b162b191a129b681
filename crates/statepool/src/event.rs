use prefix::{PrefixHash, Tokens};

use crate::Bytes;

/// A change of what the cache can resume at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// Prompts that begin like this can resume here now.
    Stored {
        /// Tokens up to the checkpoint.
        position: Tokens,
        /// Stands for all of them.
        hash: PrefixHash,
        /// What the checkpoint takes on the host.
        bytes: Bytes,
    },
    /// They no longer can.
    Removed {
        /// Tokens up to the checkpoint.
        position: Tokens,
        /// Stands for all of them.
        hash: PrefixHash,
        /// What the checkpoint took on the host.
        bytes: Bytes,
    },
}

/// Events were dropped because nobody drained them for too long; what is there now is in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cache events were missed")]
pub struct Missed;

/// Events not yet drained.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    events: Vec<Event>,
    missed: bool,
}

impl Pending {
    /// About 3 MB.
    const MOST: usize = 1 << 16;

    pub(crate) fn push(&mut self, event: Event) {
        if self.events.len() >= Self::MOST {
            self.missed = true;
            self.events = Vec::new();
        }
        if !self.missed {
            self.events.push(event);
        }
    }

    pub(crate) fn drain(&mut self) -> Result<Vec<Event>, Missed> {
        if self.missed { Err(Missed) } else { Ok(std::mem::take(&mut self.events)) }
    }

    /// What is pending is part of a snapshot.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}
