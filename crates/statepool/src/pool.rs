use std::fmt;
use std::sync::Arc;

use prefix::{Chain, Tokens, Units};

use crate::cache::{Cache, Found};
use crate::hit::{CheckpointPin, PageCopy};
use crate::lease::Prompt;
use crate::{CacheConfig, Event, Hit, Lease, Missed, NoRoom, PoolError, PoolShape};
pub(crate) use state::Shared;
use state::State;

mod state;
#[cfg(test)]
mod tests;

/// The owner of pages, slots and checkpoints. A clone is another handle to the same pool.
///
/// `C` is what is kept of a recurrent state; `()` in a pool without a cache.
pub struct Pool<C = ()> {
    shared: Arc<Shared<C>>,
}

/// How many of everything are in use. Pages that are free, held and cached add up to the pool's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Pages of live requests, shared ones counted once.
    pub held_pages: u32,
    /// Slots of live requests.
    pub held_slots: u32,
    /// Checkpoints that live requests are loading.
    pub held_checkpoints: u32,
    /// Pages that are only cached.
    pub cached_pages: u32,
    /// Checkpoints on the host.
    pub cached_checkpoints: u32,
    /// Their bytes.
    pub cached_bytes: u64,
    /// Pages that nothing refers to.
    pub free_pages: u32,
}

/// Room for a prompt, and what of it is there already.
#[derive(Debug)]
pub struct Admitted<C> {
    /// The prompt's pages and slot.
    pub lease: Lease<C>,
    /// Where it resumes; none where it starts at its beginning.
    pub hit: Option<Hit<C>>,
    /// Positions after which its state should be published, ascending. Each lies on a boundary of its chain.
    pub marks: Vec<Tokens>,
}

impl Pool {
    /// A pool in which everything is free, and nothing is kept of what is given back.
    pub fn new(shape: PoolShape) -> Self {
        Self::with_release_hook(shape, || {})
    }

    /// As [`Pool::new`]; `on_release` as in [`Pool::with_cache`].
    pub fn with_release_hook(shape: PoolShape, on_release: impl Fn() + Send + Sync + 'static) -> Self {
        Self::with_cache(shape, None, on_release)
    }
}

impl<C> Pool<C> {
    /// A pool in which everything is free; with a cache it keeps what leases publish until the room is needed.
    /// `on_release` runs after something that was held was given back, on the thread that dropped it, so that whoever
    /// waits for room can try again. It must not block.
    pub fn with_cache(
        shape: PoolShape,
        cache: Option<CacheConfig>,
        on_release: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let cache = cache.map(|config| Cache::new(config, shape.page_tokens));
        Self { shared: Arc::new(Shared::new(shape, cache, on_release)) }
    }

    /// The pool's shape.
    pub fn shape(&self) -> PoolShape {
        self.shared.shape
    }

    /// One slot, and pages for `tokens` tokens, none of them shared or ever published.
    pub fn reserve(&self, tokens: u32) -> Result<Lease<C>, NoRoom> {
        let need = self.shape().pages_for(tokens);
        let (slot, pages) = self.shared.with(|state| state.take(self.shape(), need, 1))?;
        Ok(Lease::new(&self.shared, slot, pages, 0, None))
    }

    /// One slot, and pages for `tokens` tokens of a sequence that begins with the prompt of `chain`. As much of the
    /// prompt as is cached is shared, up to the longest boundary that has a checkpoint and every page before it.
    pub fn admit(&self, chain: &Chain, tokens: Tokens) -> Result<Admitted<C>, PoolError> {
        if tokens < chain.tokens() {
            return Err(PoolError::ShortLease { lease: tokens, prompt: chain.tokens() });
        }
        self.shared.with(|state| {
            let found = match &state.cache {
                Some(cache) if cache.config().unit != chain.unit() => {
                    let cache = cache.config().unit;
                    return Err(PoolError::OtherUnit { chain: chain.unit(), cache });
                }
                Some(cache) => cache.find(chain),
                None => None,
            };
            // What a hit pins can be what a prompt as large as the pool needs: cold, it fits.
            let warm = found.and_then(|found| self.resume(state, chain, tokens, found));
            let (lease, hit) = match warm {
                Some((lease, hit)) => (lease, Some(hit)),
                None => {
                    let need = self.shape().pages_for(tokens.0);
                    let (slot, pages) = state.take(self.shape(), need, 1)?;
                    let prompt = Prompt { chain: chain.clone(), anchor: None };
                    (Lease::new(&self.shared, slot, pages, 0, Some(prompt)), None)
                }
            };
            let resume = hit.as_ref().map_or(Units(0), |hit| chain.unit().whole(hit.resume_at));
            let marks = state.cache.as_mut().map(|cache| cache.marks(chain, resume)).unwrap_or_default();
            Ok(Admitted { lease, hit, marks })
        })
    }

    /// A lease that begins with what is cached up to `found`; none where that leaves too little room for the rest.
    fn resume(
        &self,
        state: &mut State<C>,
        chain: &Chain,
        tokens: Tokens,
        found: Found,
    ) -> Option<(Lease<C>, Hit<C>)> {
        let shape = self.shape();
        let cache = state.cache.as_mut()?;
        let kept = cache.checkpoint(found)?;
        let (mut leased, open) = cache.pages(found);
        let shared = leased.len();
        let need = shape.pages_for(tokens.0).saturating_sub(cache.full_pages(found.at));
        // Before anything is evicted for the rest.
        cache.pin(&mut state.pages, found.hash);
        state.pages.hold(&leased);
        state.pages.hold(open.as_slice());
        let taken = state.take(shape, need, 1);
        let cache = state.cache.as_mut()?;
        let Ok((slot, own)) = taken else {
            state.pages.release(open.as_slice());
            state.pages.release(&leased);
            cache.unpin(&mut state.pages, found.hash);
            return None;
        };
        cache.load(&mut state.pages, found);
        let resume_at = chain.unit().position(found.at);
        let copy = open.zip(own.first().copied()).map(|(from, to)| {
            state.pages.hold(&[to]);
            PageCopy::new(&self.shared, from, to)
        });
        leased.extend(own);
        let prompt = Prompt { chain: chain.clone(), anchor: Some(found) };
        let lease = Lease::new(&self.shared, slot, leased, shared, Some(prompt));
        let checkpoint = CheckpointPin::new(&self.shared, found.hash, resume_at, kept);
        Some((lease, Hit { resume_at, checkpoint, copy }))
    }

    /// How many of everything are in use, at one moment.
    pub fn usage(&self) -> Usage {
        self.shared.with(|state| {
            let (pages, slots) = (state.pages.counts(), state.free_slots());
            let cache = state.cache.as_ref().map(Cache::counts).unwrap_or_default();
            Usage {
                held_pages: pages.held,
                held_slots: self.shape().slots - slots,
                held_checkpoints: cache.held,
                cached_pages: pages.cached,
                cached_checkpoints: cache.checkpoints,
                cached_bytes: cache.bytes,
                free_pages: state.pages.free(),
            }
        })
    }

    /// Pages that live requests hold.
    pub fn held_pages(&self) -> u32 {
        self.shared.with(|state| state.pages.counts().held)
    }

    /// Slots that live requests hold.
    pub fn held_slots(&self) -> u32 {
        self.shared.shape.slots - self.free_slots()
    }

    /// Checkpoints that live requests are loading.
    pub fn held_checkpoints(&self) -> u32 {
        self.usage().held_checkpoints
    }

    /// Pages that a reservation can get: those that nothing refers to, and cached ones that nobody uses.
    pub fn free_pages(&self) -> u32 {
        self.shared.with(|state| state.pages.obtainable())
    }

    /// Slots under no lease.
    pub fn free_slots(&self) -> u32 {
        self.shared.with(|state| state.free_slots())
    }

    /// Drops everything cached that nobody uses, as when the arrays or the weights are made anew.
    pub fn clear(&self) {
        self.shared.with(|state| {
            if let Some(cache) = &mut state.cache {
                cache.clear(&mut state.pages);
            }
        });
    }

    /// What changed since the last call, in order; or that it is too much, and [`Pool::snapshot`] says what there is.
    pub fn drain_events(&self) -> Result<Vec<Event>, Missed> {
        self.shared.with(|state| state.cache.as_mut().map_or(Ok(Vec::new()), |cache| cache.events.drain()))
    }

    /// Everything that can be resumed at, ascending; events begin anew after it.
    pub fn snapshot(&self) -> Vec<Event> {
        self.shared.with(|state| state.cache.as_mut().map(Cache::snapshot).unwrap_or_default())
    }
}

impl<C> Clone for Pool<C> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<C> fmt::Debug for Pool<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("shape", &self.shared.shape).finish_non_exhaustive()
    }
}
