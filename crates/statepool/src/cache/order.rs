use std::collections::BTreeSet;

use prefix::PrefixHash;

use crate::Keep;

/// In which order checkpoints are evicted: all that are not pinned for bytes on the host, the leaves for pages.
#[derive(Debug)]
pub(super) struct Order {
    keep: Keep,
    pub(super) bytes: Queue,
    pub(super) pages: Queue,
}

impl Order {
    pub(super) fn new(keep: Keep) -> Self {
        Self { keep, bytes: Queue::default(), pages: Queue::default() }
    }

    /// The clocks at a use, from which a checkpoint's ranks are counted.
    pub(super) fn used(&mut self) -> Bases {
        if self.keep == Keep::Recent {
            self.bytes.clock += 1.0;
            self.pages.clock += 1.0;
        }
        Bases { bytes: self.bytes.clock, pages: self.pages.clock }
    }

    /// A rank from a base: lower goes first.
    pub(super) fn rank(&self, base: f64, worth: f64) -> Rank {
        match self.keep {
            Keep::Recent => Rank::of(base),
            Keep::Worth => Rank::of(base + worth),
        }
    }
}

/// Both clocks at a checkpoint's last use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bases {
    pub(super) bytes: f64,
    pub(super) pages: f64,
}

/// A number >= 0; the bits of such numbers are ordered as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank(u64);

impl Rank {
    fn of(rank: f64) -> Self {
        Self(rank.max(0.0).to_bits())
    }
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    queued: BTreeSet<(Rank, PrefixHash)>,
    clock: f64,
}

impl Queue {
    pub(super) fn first(&self) -> Option<(Rank, PrefixHash)> {
        self.queued.first().copied()
    }

    /// Puts `hash` where it belongs, or nowhere, given where it was.
    pub(super) fn put(&mut self, hash: PrefixHash, was: &mut Option<Rank>, now: Option<Rank>) {
        if *was == now {
            return;
        }
        if let Some(rank) = was.take() {
            self.queued.remove(&(rank, hash));
        }
        if let Some(rank) = now {
            self.queued.insert((rank, hash));
        }
        *was = now;
    }

    /// One of this rank is evicted: what is used from now on outranks it. Recency's clock ticks with uses instead, and is
    /// never behind.
    pub(super) fn evicted(&mut self, rank: Rank) {
        self.clock = self.clock.max(f64::from_bits(rank.0));
    }
}
