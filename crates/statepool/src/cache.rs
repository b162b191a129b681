use std::collections::HashMap;
use std::sync::Arc;

use prefix::{Chain, PrefixHash, Units};

use crate::event::{Event, Pending};
use crate::pages::Pages;
use crate::{Bytes, CacheConfig, PageId};
use marker::Marker;
use order::{Bases, Order, Rank};
pub use publish::Published;
use seen::Seen;

mod evict;
mod marker;
mod order;
mod publish;
mod seen;

/// The boundaries that are cached, as a tree: each with the pages that became full in its unit, some with a checkpoint.
///
/// Every boundary has all its ancestors, and every leaf has a checkpoint or is pinned. So all pages that a checkpoint
/// needs are there while it is, and none is there that no checkpoint needs.
pub(crate) struct Cache<C> {
    config: CacheConfig,
    page_tokens: u32,
    nodes: HashMap<PrefixHash, Node<C>>,
    order: Order,
    marker: Marker,
    seen: Seen,
    counts: CacheCounts,
    pub(crate) events: Pending,
    /// Dropped checkpoints. They are large: the pool lets go of them after it has let go of its lock.
    grave: Vec<Arc<C>>,
}

/// What the cache has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheCounts {
    pub(crate) checkpoints: u32,
    pub(crate) bytes: u64,
    /// Pinned by those who load them.
    pub(crate) held: u32,
    held_bytes: u64,
}

struct Node<C> {
    parent: Option<PrefixHash>,
    at: Units,
    /// Those that became full in this unit; all but the last lines of one can be another publisher's of the same tokens.
    pages: Vec<PageId>,
    /// The one that the boundary lies in, or whose last line is written again by whoever resumes here.
    open: Option<PageId>,
    kept: Option<Kept<C>>,
    children: u32,
    /// Pins on this boundary and on those below.
    pins: u32,
}

struct Kept<C> {
    state: Arc<C>,
    bytes: u64,
    /// How many load it.
    loading: u32,
    uses: u32,
    bases: Bases,
    in_bytes: Option<Rank>,
    in_pages: Option<Rank>,
    /// It is not what it stood for: never found again, and dropped with its last pin.
    doomed: bool,
}

/// The longest boundary of a prompt that has every group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) hash: PrefixHash,
    pub(crate) at: Units,
}

impl<C> Cache<C> {
    pub(crate) fn new(config: CacheConfig, page_tokens: u32) -> Self {
        Self {
            config,
            page_tokens: page_tokens.max(1),
            nodes: HashMap::new(),
            order: Order::new(config.keep),
            marker: Marker::new(config.marks),
            seen: Seen::new(config.remembered),
            counts: CacheCounts::default(),
            events: Pending::default(),
            grave: Vec::new(),
        }
    }

    pub(crate) fn config(&self) -> &CacheConfig {
        &self.config
    }

    pub(crate) fn counts(&self) -> CacheCounts {
        self.counts
    }

    pub(crate) fn take_grave(&mut self) -> Vec<Arc<C>> {
        std::mem::take(&mut self.grave)
    }

    /// Pages whose every line before the boundary stays as it is, whoever resumes there.
    pub(crate) fn full_pages(&self, at: Units) -> u32 {
        let rewritten = u32::from(self.config.rewrites_last_line);
        self.config.unit.position(at).0.saturating_sub(rewritten) / self.page_tokens
    }

    /// Index of the page that is copied by whoever resumes at the boundary.
    fn open_page(&self, at: Units) -> Option<usize> {
        let full = self.full_pages(at);
        (full.saturating_mul(self.page_tokens) < self.config.unit.position(at).0).then_some(full as usize)
    }

    pub(crate) fn find(&self, chain: &Chain) -> Option<Found> {
        let mut found = None;
        for boundary in chain.boundaries().take(chain.usable().0 as usize) {
            let Some(node) = self.nodes.get(&boundary.hash) else { break };
            if node.kept.as_ref().is_some_and(|kept| !kept.doomed) {
                found = Some(Found { hash: boundary.hash, at: node.at });
            }
        }
        found
    }

    /// The pages before a boundary that are read and never written, in the order of the positions; and the one to copy.
    pub(crate) fn pages(&self, found: Found) -> (Vec<PageId>, Option<PageId>) {
        let mut pages = Vec::new();
        for node in self.path(found.hash) {
            pages.extend(node.pages.iter().rev());
        }
        pages.reverse();
        (pages, self.nodes.get(&found.hash).and_then(|node| node.open))
    }

    fn path(&self, from: PrefixHash) -> impl Iterator<Item = &Node<C>> {
        let first = self.nodes.get(&from);
        std::iter::successors(first, |node| node.parent.and_then(|parent| self.nodes.get(&parent)))
    }

    /// Keeps a boundary and its ancestors from eviction; its checkpoint can go, unless it is loaded.
    pub(crate) fn pin(&mut self, pages: &mut Pages, at: PrefixHash) {
        self.each_up(at, |node| {
            node.pins += 1;
            (node.pins == 1).then(|| node.each_page(|page| pages.pin(&[page])))
        });
    }

    /// Takes back one [`Cache::pin`].
    pub(crate) fn unpin(&mut self, pages: &mut Pages, at: PrefixHash) {
        self.each_up(at, |node| {
            node.pins = node.pins.saturating_sub(1);
            (node.pins == 0).then(|| node.each_page(|page| pages.unpin(&[page])))
        });
        self.prune(pages, at);
    }

    /// Changes a boundary and its ancestors, and queues those anew for which `change` says so.
    fn each_up(&mut self, from: PrefixHash, mut change: impl FnMut(&mut Node<C>) -> Option<()>) {
        let mut next = Some(from);
        while let Some(hash) = next {
            let Some(node) = self.nodes.get_mut(&hash) else { return };
            next = node.parent;
            if change(node).is_some() {
                self.requeue(hash);
            }
        }
    }

    pub(crate) fn checkpoint(&self, found: Found) -> Option<Arc<C>> {
        let kept = self.nodes.get(&found.hash)?.kept.as_ref()?;
        Some(Arc::clone(&kept.state))
    }

    /// A prompt resumes here: its checkpoint is pinned until [`Cache::loaded`].
    pub(crate) fn load(&mut self, pages: &mut Pages, found: Found) {
        self.pin(pages, found.hash);
        let bases = self.order.used();
        let Some(kept) = self.nodes.get_mut(&found.hash).and_then(|node| node.kept.as_mut()) else { return };
        kept.bases = bases;
        kept.uses += 1;
        kept.loading += 1;
        if kept.loading == 1 {
            self.counts.held += 1;
            self.counts.held_bytes += kept.bytes;
        }
        self.requeue(found.hash);
    }

    /// A checkpoint was loaded, or given up. `doomed`: it was not what it stood for.
    pub(crate) fn loaded(&mut self, pages: &mut Pages, at: PrefixHash, doomed: bool) {
        let Some(kept) = self.nodes.get_mut(&at).and_then(|node| node.kept.as_mut()) else { return };
        kept.doomed |= doomed;
        kept.loading = kept.loading.saturating_sub(1);
        let last = kept.loading == 0;
        if last {
            self.counts.held = self.counts.held.saturating_sub(1);
            self.counts.held_bytes = self.counts.held_bytes.saturating_sub(kept.bytes);
        }
        if last && kept.doomed {
            self.drop_checkpoint(pages, at);
        } else {
            self.requeue(at);
        }
        self.unpin(pages, at);
    }

    /// Everything that can be resumed at, as if it had been stored just now; pending events are part of it.
    pub(crate) fn snapshot(&mut self) -> Vec<Event> {
        self.events.forget();
        let mut all: Vec<Event> = Vec::new();
        for (hash, node) in &self.nodes {
            if let Some(kept) = &node.kept {
                let position = self.config.unit.position(node.at);
                all.push(Event::Stored { hash: *hash, position, bytes: Bytes(kept.bytes) });
            }
        }
        all.sort_unstable();
        all
    }
}

impl<C> Node<C> {
    fn each_page(&self, each: impl FnMut(PageId)) {
        self.pages.iter().copied().chain(self.open).for_each(each);
    }
}
