//! Who is alive, in which role, with how much room: one trait, an in-memory registry.
//!
//! Workers [`Announce`] themselves; the router watches the [`View`]. Without etcd the registry lives in the router
//! ([`InMemory`]), served to workers by [`MembershipService`] and reached by them through [`Remote`].

mod in_memory;
mod remote;
mod service;
mod view;

use async_trait::async_trait;
use proto::v1::{Load, WorkerRecord};
use tokio::sync::watch;

pub use in_memory::{InMemory, Seat};
pub use remote::Remote;
pub use service::MembershipService;
pub use view::{Member, View};

/// Why a worker is not (or no longer) a member.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The record lacks something that a member must say.
    #[error("worker record: {field} is missing")]
    Incomplete {
        /// The record's field.
        field: &'static str,
    },
    /// The address of the registry is no address.
    #[error("registry address {address:?}: {reason}")]
    Address {
        /// As given.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The registry will not have this worker: its record is wrong, or a newer start of it has joined.
    #[error("registry {address} refused: {reason}")]
    Refused {
        /// As given.
        address: String,
        /// What happened.
        reason: String,
    },
}

/// The worker's side: be a member for as long as this runs.
#[async_trait]
pub trait Announce: Send + Sync {
    /// Joins with `record`, keeps the membership alive and the load current, and joins again after every loss. Returns
    /// only when the record is refused for good; dropping the future leaves.
    async fn announce(&self, record: WorkerRecord, load: watch::Receiver<Load>) -> Error;
}

/// The router's side: the members as they come and go.
pub trait Registry: Send + Sync {
    /// The current view, and every later one.
    fn watch(&self) -> watch::Receiver<View>;
}
