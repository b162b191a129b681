use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[cfg(test)]
mod tests;

/// How much room the state arrays have. The arrays hold one page and one slot more than this: the trash page and the
/// trash slot, which take what padded rows write and are never leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolShape {
    /// Leasable latent pages.
    pub pages: u32,
    /// Leasable recurrent slots: the most sequences that can hold state at once.
    pub slots: u32,
    /// Tokens whose latents fit in one page.
    pub page_tokens: u32,
}

impl PoolShape {
    /// Index of the page that padded rows read and write.
    pub fn trash_page(&self) -> PageId {
        PageId(self.pages)
    }

    /// Index of the slot that padded rows read and write.
    pub fn trash_slot(&self) -> SlotId {
        SlotId(self.slots)
    }

    /// Pages that hold the latents of `tokens` tokens.
    pub fn pages_for(&self, tokens: u32) -> u32 {
        tokens.div_ceil(self.page_tokens.max(1))
    }
}

/// Index of a page on the page axis of the latents array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId(pub u32);

/// Index of a slot on the slot axis of the recurrent arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub u32);

/// The pool can not grant a lease now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no room for {need_pages} pages and {need_slots} slots: {free_pages} of {pages} pages and {free_slots} of {slots} slots are free"
)]
pub struct NoRoom {
    /// Pages asked for.
    pub need_pages: u32,
    /// Slots asked for: 1, or 0 when a lease was to grow.
    pub need_slots: u32,
    /// Pages free at that moment.
    pub free_pages: u32,
    /// Slots free at that moment.
    pub free_slots: u32,
    /// Pages in the pool.
    pub pages: u32,
    /// Slots in the pool.
    pub slots: u32,
}

impl NoRoom {
    /// Whether waiting can help: false when the empty pool would be too small as well.
    pub fn may_pass(&self) -> bool {
        self.need_pages <= self.pages && self.need_slots <= self.slots
    }
}

/// The free pages and slots. A clone is another handle to the same pool.
#[derive(Clone, Debug)]
pub struct Pool {
    shared: Arc<Shared>,
}

impl Pool {
    /// A pool in which everything is free.
    pub fn new(shape: PoolShape) -> Self {
        Self::with_release_hook(shape, || {})
    }

    /// As [`Pool::new`]; `on_release` runs after each lease that was given back, on the thread that dropped it, so
    /// that whoever waits for room can try again. It must not block.
    pub fn with_release_hook(shape: PoolShape, on_release: impl Fn() + Send + Sync + 'static) -> Self {
        // Popped from the end: low indices go first.
        let free = Free { pages: (0..shape.pages).rev().collect(), slots: (0..shape.slots).rev().collect() };
        Self { shared: Arc::new(Shared { shape, free: Mutex::new(free), on_release: Box::new(on_release) }) }
    }

    /// The pool's shape.
    pub fn shape(&self) -> PoolShape {
        self.shared.shape
    }

    /// One slot, and pages for `tokens` tokens.
    pub fn reserve(&self, tokens: u32) -> Result<Lease, NoRoom> {
        let shape = self.shape();
        let need = shape.pages_for(tokens);
        let mut free = self.shared.lock();
        if !free.fits(need, 1) {
            return Err(free.no_room(shape, need, 1));
        }
        let Some(slot) = free.slots.pop() else { return Err(free.no_room(shape, need, 1)) };
        let pages = free.take_pages(need);
        Ok(Lease { shared: Arc::clone(&self.shared), slot: SlotId(slot), pages })
    }

    /// Pages under a lease.
    pub fn held_pages(&self) -> u32 {
        self.shared.shape.pages - self.free_pages()
    }

    /// Slots under a lease.
    pub fn held_slots(&self) -> u32 {
        self.shared.shape.slots - self.free_slots()
    }

    /// Pages under no lease.
    pub fn free_pages(&self) -> u32 {
        self.shared.lock().free_pages()
    }

    /// Slots under no lease.
    pub fn free_slots(&self) -> u32 {
        self.shared.lock().free_slots()
    }
}

/// One sequence's pages and slot. Whoever holds it may write them; dropping it gives them back.
pub struct Lease {
    shared: Arc<Shared>,
    slot: SlotId,
    /// In the order of the positions: page i holds positions [i * page_tokens, (i + 1) * page_tokens).
    pages: Vec<PageId>,
}

impl Lease {
    /// The slot.
    pub fn slot(&self) -> SlotId {
        self.slot
    }

    /// The pages; page i holds positions [i * page_tokens, (i + 1) * page_tokens).
    pub fn pages(&self) -> &[PageId] {
        &self.pages
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
        let mut free = self.shared.lock();
        if !free.fits(need, 0) {
            return Err(free.no_room(shape, need, 0));
        }
        let mut added = free.take_pages(need);
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

impl Drop for Lease {
    fn drop(&mut self) {
        let mut free = self.shared.lock();
        free.slots.push(self.slot.0);
        free.pages.extend(self.pages.iter().rev().map(|page| page.0));
        drop(free);
        (self.shared.on_release)();
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("slot", &self.slot).field("pages", &self.pages).finish()
    }
}

struct Shared {
    shape: PoolShape,
    free: Mutex<Free>,
    on_release: Box<dyn Fn() + Send + Sync>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Free> {
        // No code that can panic runs under the lock, so a poisoned list is still a true one.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("shape", &self.shape).finish_non_exhaustive()
    }
}

struct Free {
    pages: Vec<u32>,
    slots: Vec<u32>,
}

impl Free {
    fn free_pages(&self) -> u32 {
        u32::try_from(self.pages.len()).unwrap_or(u32::MAX)
    }

    fn free_slots(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    fn fits(&self, pages: u32, slots: u32) -> bool {
        pages <= self.free_pages() && slots <= self.free_slots()
    }

    /// Only after `fits` said yes.
    fn take_pages(&mut self, need: u32) -> Vec<PageId> {
        let keep = self.pages.len().saturating_sub(need as usize);
        self.pages.split_off(keep).into_iter().rev().map(PageId).collect()
    }

    fn no_room(&self, shape: PoolShape, need_pages: u32, need_slots: u32) -> NoRoom {
        NoRoom {
            need_pages,
            need_slots,
            free_pages: self.free_pages(),
            free_slots: self.free_slots(),
            pages: shape.pages,
            slots: shape.slots,
        }
    }
}
