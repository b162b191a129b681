use std::fmt;
use std::sync::Arc;

use prefix::{Chain, Tokens};

use crate::cache::{Found, Published};
use crate::pool::Shared;
use crate::{Checkpoint, NoRoom, PageId, PoolError, SlotId};

/// One sequence's pages and slot. Whoever holds it may write the slot and the pages of its own; dropping it gives all back.
///
/// It must outlive the device's last step that reads or writes them.
pub struct Lease<C = ()> {
    shared: Arc<Shared<C>>,
    slot: SlotId,
    /// In the order of the positions: page i holds positions [i * page_tokens, (i + 1) * page_tokens).
    pages: Vec<PageId>,
    /// How many of them, from the first, others may be reading, too.
    common: usize,
    prompt: Option<Prompt>,
}

/// What a lease was admitted for.
pub(crate) struct Prompt {
    pub(crate) chain: Chain,
    /// The deepest cached boundary whose pages are the lease's; pinned.
    pub(crate) anchor: Option<Found>,
}

/// Says that the device finished the step that ended after so many tokens of a sequence, and everything queued before
/// it. Make it from the device's answer and from nothing else: what is published with it is given to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Tokens of the sequence whose lines are written, by the step's answer.
    pub tokens: Tokens,
}

impl<C> Lease<C> {
    pub(crate) fn new(
        shared: &Arc<Shared<C>>,
        slot: SlotId,
        pages: Vec<PageId>,
        common: usize,
        prompt: Option<Prompt>,
    ) -> Self {
        Self { shared: Arc::clone(shared), slot, pages, common, prompt }
    }

    /// The slot.
    pub fn slot(&self) -> SlotId {
        self.slot
    }

    /// The pages; page i holds positions [i * page_tokens, (i + 1) * page_tokens).
    pub fn pages(&self) -> &[PageId] {
        &self.pages
    }

    /// The pages after the shared ones: those that the sequence writes.
    pub fn own_pages(&self) -> &[PageId] {
        self.pages.get(self.common..).unwrap_or_default()
    }

    /// Tokens whose latents fit.
    pub fn capacity(&self) -> u32 {
        u32::try_from(self.pages.len()).unwrap_or(u32::MAX).saturating_mul(self.shared.shape.page_tokens)
    }

    /// Adds pages until `tokens` tokens fit; the slot and the pages already held stay as they are, also when there is
    /// no room.
    pub fn grow(&mut self, tokens: u32) -> Result<(), NoRoom> {
        let shape = self.shared.shape;
        let held = u32::try_from(self.pages.len()).unwrap_or(u32::MAX);
        let need = shape.pages_for(tokens).saturating_sub(held);
        let mut added = self.shared.with(|state| state.take_pages(shape, need, 0))?;
        self.pages.append(&mut added);
        Ok(())
    }

    /// Writes a page table row: the leased pages, then the trash page in every place that is left.
    pub fn write_row(&self, row: &mut [i32]) {
        let trash = self.shared.shape.trash_page();
        for (index, place) in row.iter_mut().enumerate() {
            let page = self.pages.get(index).copied().unwrap_or(trash);
            *place = i32::try_from(page.0).unwrap_or(i32::MAX);
        }
    }
}

impl<C: Checkpoint> Lease<C> {
    /// Gives the pages up to the end of a finished step, and the state there, to whoever begins alike. The step has to
    /// end at a boundary of the lease's chain, and the state's own count has to say the same. Lines beyond the boundary
    /// go on being written; those before it no more (the one right before it only by models that rewrite it).
    pub fn publish(&mut self, finished: Finished, state: C) -> Result<Published, PoolError> {
        let capacity = Tokens(self.capacity());
        let prompt = self.prompt.as_mut().ok_or(PoolError::NoCache)?;
        let (chain, tokens) = (&prompt.chain, finished.tokens);
        let (unit, counted, bytes) = (chain.unit(), state.tokens(), state.bytes());
        let boundary = unit.boundary(tokens).and_then(|at| Some(Found { hash: chain.hash(at)?, at }));
        let Some(found) = boundary else {
            return Err(PoolError::NotABoundary { tokens, chain: chain.tokens(), unit });
        };
        if tokens > capacity {
            return Err(PoolError::BeyondLease { tokens, capacity });
        }
        if counted != tokens {
            return Err(PoolError::WrongPosition { state: counted, boundary: tokens });
        }
        let state = Arc::new(state);
        self.shared.with(|pool| {
            let cache = pool.cache.as_mut().ok_or(PoolError::NoCache)?;
            let published = cache.publish(&mut pool.pages, chain, &self.pages, (found.at, state, bytes));
            let deeper = prompt.anchor.is_none_or(|anchor| anchor.at < found.at);
            if published != Published::NoBudget && deeper {
                cache.pin(&mut pool.pages, found.hash);
                if let Some(former) = prompt.anchor.replace(found) {
                    cache.unpin(&mut pool.pages, former.hash);
                }
            }
            Ok(published)
        })
    }
}

impl<C> Drop for Lease<C> {
    fn drop(&mut self) {
        let anchor = self.prompt.as_ref().and_then(|prompt| prompt.anchor);
        self.shared.give_back(|state| {
            state.slots.push(self.slot.0);
            state.pages.release(&self.pages);
            if let (Some(anchor), Some(cache)) = (anchor, &mut state.cache) {
                cache.unpin(&mut state.pages, anchor.hash);
            }
        });
    }
}

impl<C> fmt::Debug for Lease<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("slot", &self.slot).field("pages", &self.pages).finish_non_exhaustive()
    }
}
