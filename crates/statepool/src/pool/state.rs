use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cache::Cache;
use crate::pages::Pages;
use crate::{NoRoom, PageId, PoolShape, SlotId};

pub(crate) struct Shared<C> {
    pub(crate) shape: PoolShape,
    state: Mutex<State<C>>,
    on_release: Box<dyn Fn() + Send + Sync>,
}

impl<C> Shared<C> {
    pub(super) fn new(
        shape: PoolShape,
        cache: Option<Cache<C>>,
        on_release: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        // Popped from the end: low indices go first.
        let slots = (0..shape.slots).rev().collect();
        let state = State { pages: Pages::new(shape.pages), slots, cache };
        Self { shape, state: Mutex::new(state), on_release: Box::new(on_release) }
    }

    /// Runs `f` under the lock; checkpoints that it dropped are freed after it.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut State<C>) -> R) -> R {
        let mut state = self.lock();
        let result = f(&mut state);
        let grave = state.cache.as_mut().map(Cache::take_grave);
        drop(state);
        drop(grave);
        result
    }

    /// As [`Shared::with`], for what was held and is given back.
    pub(crate) fn give_back(&self, f: impl FnOnce(&mut State<C>)) {
        self.with(f);
        (self.on_release)();
    }

    fn lock(&self) -> MutexGuard<'_, State<C>> {
        // No code that can panic runs under the lock, so a poisoned state is still a true one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct State<C> {
    pub(crate) pages: Pages,
    pub(crate) slots: Vec<u32>,
    pub(crate) cache: Option<Cache<C>>,
}

impl<C> State<C> {
    pub(super) fn free_slots(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// `pages` free pages and a slot, evicting what is cached as far as that helps.
    pub(super) fn take(
        &mut self,
        shape: PoolShape,
        pages: u32,
        slots: u32,
    ) -> Result<(SlotId, Vec<PageId>), NoRoom> {
        if self.free_slots() < slots {
            return Err(self.no_room(shape, pages, slots));
        }
        let taken = self.take_pages(shape, pages, slots)?;
        match self.slots.pop() {
            Some(slot) => Ok((SlotId(slot), taken)),
            None => {
                self.pages.release(&taken);
                Err(self.no_room(shape, pages, slots))
            }
        }
    }

    pub(crate) fn take_pages(
        &mut self,
        shape: PoolShape,
        pages: u32,
        slots: u32,
    ) -> Result<Vec<PageId>, NoRoom> {
        if self.pages.obtainable() < pages {
            return Err(self.no_room(shape, pages, slots));
        }
        if let Some(cache) = &mut self.cache {
            cache.free_pages(&mut self.pages, pages);
        }
        Ok(self.pages.take(pages))
    }

    fn no_room(&self, shape: PoolShape, need_pages: u32, need_slots: u32) -> NoRoom {
        NoRoom {
            need_pages,
            need_slots,
            free_pages: self.pages.obtainable(),
            free_slots: self.free_slots(),
            pages: shape.pages,
            slots: shape.slots,
        }
    }
}
