use prefix::{HashUnit, Tokens};

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
    /// Pages that could be had at that moment, cached ones that nobody uses included.
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

/// Why a call was refused. Nothing has changed. All but [`PoolError::NoRoom`] are the caller's mistake: they end the
/// request they came up in, and trying again is no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// Nothing is wrong; the pool is full.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The chain's boundaries are not the cache's.
    #[error("the chain's unit is {chain}, the cache's {cache}")]
    OtherUnit {
        /// The chain's.
        chain: HashUnit,
        /// The cache's.
        cache: HashUnit,
    },
    /// A lease was asked for that its own prompt does not fit in.
    #[error("a lease for {lease} does not hold a prompt of {prompt}")]
    ShortLease {
        /// Asked for.
        lease: Tokens,
        /// The chain's.
        prompt: Tokens,
    },
    /// A checkpoint for a lease that has no chain, or a pool that has no cache.
    #[error("the lease was made without a chain or its pool without a cache: nothing can be published")]
    NoCache,
    /// A checkpoint that does not lie on a boundary of its chain.
    #[error("a checkpoint after {tokens} is at no boundary of a chain of {chain} in units of {unit}")]
    NotABoundary {
        /// Where the step ended.
        tokens: Tokens,
        /// Tokens of the lease's chain.
        chain: Tokens,
        /// How far its boundaries lie apart.
        unit: HashUnit,
    },
    /// More tokens are said to be computed than the lease has pages for.
    #[error("{tokens} are beyond the lease's capacity of {capacity}")]
    BeyondLease {
        /// Where the step ended.
        tokens: Tokens,
        /// What fits in the lease.
        capacity: Tokens,
    },
    /// The count inside a state is not that of the place where it was, or is to be.
    #[error("a state that has consumed {state} stands for {boundary}")]
    WrongPosition {
        /// The state's own count.
        state: Tokens,
        /// The boundary's.
        boundary: Tokens,
    },
}

impl PoolError {
    /// Whether waiting can help.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::NoRoom(no_room) if no_room.may_pass())
    }
}
