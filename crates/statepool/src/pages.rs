use crate::PageId;

/// Who refers to each page. The only place where a page becomes free.
#[derive(Debug)]
pub(crate) struct Pages {
    all: Vec<Page>,
    /// Popped from the end: low indices go first.
    free: Vec<u32>,
    counts: Counts,
}

/// A page nobody refers to is free.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    /// Leases, and copies under way.
    held: u32,
    /// Boundaries of the cache.
    cached: u32,
    /// Those of them that are pinned, themselves or by a descendant.
    pinned: u32,
}

/// Pages by what they are in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// In leases or copies.
    pub(crate) held: u32,
    /// Only in the cache.
    pub(crate) cached: u32,
    /// Those of the cached that an eviction frees.
    pub(crate) evictable: u32,
}

impl Page {
    fn counts(self) -> Counts {
        let cached = self.held == 0 && self.cached > 0;
        Counts {
            held: u32::from(self.held > 0),
            cached: u32::from(cached),
            evictable: u32::from(cached && self.pinned == 0),
        }
    }
}

impl Pages {
    pub(crate) fn new(pages: u32) -> Self {
        Self {
            all: vec![Page::default(); pages as usize],
            free: (0..pages).rev().collect(),
            counts: Counts::default(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn free(&self) -> u32 {
        u32::try_from(self.free.len()).unwrap_or(u32::MAX)
    }

    /// What a reservation can get.
    pub(crate) fn obtainable(&self) -> u32 {
        self.free() + self.counts.evictable
    }

    /// Free pages, now held; fewer than `need` where fewer are free.
    pub(crate) fn take(&mut self, need: u32) -> Vec<PageId> {
        let keep = self.free.len().saturating_sub(need as usize);
        let taken: Vec<PageId> = self.free.split_off(keep).into_iter().rev().map(PageId).collect();
        self.hold(&taken);
        taken
    }

    pub(crate) fn hold(&mut self, pages: &[PageId]) {
        self.change(pages, |page| page.held += 1);
    }

    /// In the order in which they were leased: what comes back is leased again in that order.
    pub(crate) fn release(&mut self, pages: &[PageId]) {
        self.change(pages, |page| page.held = page.held.saturating_sub(1));
    }

    pub(crate) fn cache(&mut self, pages: &[PageId]) {
        self.change(pages, |page| page.cached += 1);
    }

    /// Only of boundaries that are not pinned.
    pub(crate) fn uncache(&mut self, pages: &[PageId]) {
        self.change(pages, |page| page.cached = page.cached.saturating_sub(1));
    }

    pub(crate) fn pin(&mut self, pages: &[PageId]) {
        self.change(pages, |page| page.pinned += 1);
    }

    pub(crate) fn unpin(&mut self, pages: &[PageId]) {
        self.change(pages, |page| page.pinned = page.pinned.saturating_sub(1));
    }

    fn change(&mut self, pages: &[PageId], with: impl Fn(&mut Page)) {
        for id in pages.iter().rev() {
            let Some(page) = self.all.get_mut(id.0 as usize) else { continue };
            let before = page.counts();
            with(page);
            let after = page.counts();
            if page.held == 0 && page.cached == 0 {
                self.free.push(id.0);
            }
            self.counts.held = self.counts.held + after.held - before.held;
            self.counts.cached = self.counts.cached + after.cached - before.cached;
            self.counts.evictable = self.counts.evictable + after.evictable - before.evictable;
        }
    }
}
