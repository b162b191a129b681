//! Who holds which latent page, recurrent slot and checkpoint.
//!
//! The scheduler and the engine ask for a [`Lease`] before they compute anything for a sequence; the lease names the
//! pages and the slot of the device arrays that the sequence uses, and dropping it gives them back. A pool with a cache
//! keeps what a lease published: pages stay where they are, the recurrent state is a [`Checkpoint`] on the host, and a
//! prompt that begins alike is admitted with a [`Hit`]. This crate calls nobody but `prefix`: it knows numbers, no device.
//!
//! # A sequence's life
//!
//! 1. [`Pool::admit`] with the prompt's chain: a lease, perhaps a hit, and the marks.
//! 2. With a hit: the device copies [`PageCopy`], [`CheckpointPin::load`] goes into the slot, and both are dropped when
//!    the device has done so. The first token computed is that at `resume_at`.
//! 3. Steps end at the marks. After each, when the device's answer is there, [`Lease::publish`].
//! 4. The lease is dropped; what was published stays until its room is needed.
//!
//! # What is true at every moment
//!
//! A page is free when no lease, copy or boundary refers to it. A boundary is in the cache with all its ancestors and
//! all their pages, or not at all. A hit has all groups, or there is none. Nothing pinned is evicted. Pages of a shared
//! prefix are written by nobody: the one that a boundary lies in is copied first.

mod cache;
mod config;
mod error;
mod event;
mod hit;
mod lease;
mod pages;
mod pool;
mod shape;

pub use cache::Published;
pub use config::{Bytes, CacheConfig, Checkpoint, Keep, Marks};
pub use error::{NoRoom, PoolError};
pub use event::{Event, Missed};
pub use hit::{CheckpointPin, Hit, PageCopy};
pub use lease::{Finished, Lease};
pub use pool::{Admitted, Pool, Usage};
pub use prefix;
pub use shape::{PageId, PoolShape, SlotId};
