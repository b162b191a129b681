//! Who holds which latent page, recurrent slot and checkpoint.
//!
//! The scheduler and the engine ask for a [`Lease`] before they compute anything for a sequence; the lease names
//! the pages and the slot of the device arrays that are the sequence's alone, and dropping it gives them back.
//! This crate calls nobody: it knows numbers, no device.

mod pool;

pub use pool::{Lease, NoRoom, PageId, Pool, PoolShape, SlotId};
