use std::fmt;
use std::sync::Arc;

use prefix::{PrefixHash, Tokens};

use crate::pool::Shared;
use crate::{Checkpoint, PageId, PoolError};

/// What of a prompt is there already: one value for all groups, and never more than each of them has.
#[derive(Debug)]
pub struct Hit<C> {
    /// The first position to compute. The lease's shared pages and `copy` hold every line before it.
    pub resume_at: Tokens,
    /// The recurrent state after `resume_at` tokens, to put into the lease's slot.
    pub checkpoint: CheckpointPin<C>,
    /// The page to copy before anything is computed. It is part of the checkpoint's boundary, not of the lease.
    pub copy: Option<PageCopy<C>>,
}

/// A checkpoint that is being loaded: it is not evicted until this is dropped.
pub struct CheckpointPin<C> {
    shared: Arc<Shared<C>>,
    hash: PrefixHash,
    at: Tokens,
    state: Arc<C>,
    doomed: bool,
}

impl<C> CheckpointPin<C> {
    pub(crate) fn new(shared: &Arc<Shared<C>>, hash: PrefixHash, at: Tokens, state: Arc<C>) -> Self {
        Self { shared: Arc::clone(shared), hash, at, state, doomed: false }
    }
}

impl<C: Checkpoint> CheckpointPin<C> {
    /// The state, if its own count is that of the boundary; otherwise it is never found again, and the prompt has to
    /// be admitted anew.
    pub fn load(&mut self) -> Result<&C, PoolError> {
        let state = self.state.tokens();
        if state == self.at {
            return Ok(&self.state);
        }
        self.doomed = true;
        Err(PoolError::WrongPosition { state, boundary: self.at })
    }
}

impl<C> Drop for CheckpointPin<C> {
    fn drop(&mut self) {
        self.shared.give_back(|state| {
            if let Some(cache) = &mut state.cache {
                cache.loaded(&mut state.pages, self.hash, self.doomed);
            }
        });
    }
}

impl<C> fmt::Debug for CheckpointPin<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckpointPin")
            .field("hash", &self.hash)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

/// A page that others read, to be copied whole to one that is the lease's alone. Neither is given to anyone else until
/// this is dropped, which must be after the device made the copy.
pub struct PageCopy<C> {
    shared: Arc<Shared<C>>,
    from: PageId,
    to: PageId,
}

impl<C> PageCopy<C> {
    /// Both pages are held already.
    pub(crate) fn new(shared: &Arc<Shared<C>>, from: PageId, to: PageId) -> Self {
        Self { shared: Arc::clone(shared), from, to }
    }

    /// The page with the lines.
    pub fn from(&self) -> PageId {
        self.from
    }

    /// The page that gets them: the first of the lease's own.
    pub fn to(&self) -> PageId {
        self.to
    }
}

impl<C> Drop for PageCopy<C> {
    fn drop(&mut self) {
        self.shared.give_back(|state| state.pages.release(&[self.from, self.to]));
    }
}

impl<C> fmt::Debug for PageCopy<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageCopy").field("from", &self.from).field("to", &self.to).finish()
    }
}
