//! Who is alive, in which role, with how much room: one trait; in-memory, and etcd.
//!
//! Workers [`Announce`] themselves; the router watches the [`View`]. Without etcd the registry lives in the router
//! ([`InMemory`]), served to workers by [`MembershipService`] and reached by them through [`Remote`]. With it several routers
//! see the same members ([`Etcd`]).

mod etcd;
mod in_memory;
mod remote;
mod service;
mod view;

use std::path::PathBuf;

use async_trait::async_trait;
use proto::v1::{Load, WorkerRecord};
use tokio::sync::watch;

pub use etcd::{Contact, Etcd, EtcdFlags, Following};
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
    /// A file that etcd is reached with can't be read.
    #[error("{}: {reason}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// From the file system.
        reason: String,
    },
    /// The contract can't be turned into JSON or back: a fault of this program.
    #[error("worker record as JSON: {reason}")]
    Contract {
        /// What is wrong.
        reason: String,
    },
}

/// Whether a record says what a member must say.
fn complete(record: &WorkerRecord) -> Result<(), Error> {
    let missing = |field| Err(Error::Incomplete { field });
    match () {
        () if record.name.is_empty() => missing("name"),
        () if record.incarnation.is_empty() => missing("incarnation"),
        () if record.grpc_address.is_empty() => missing("grpc_address"),
        () if record.fingerprint.is_none() => missing("fingerprint"),
        () if record.layout.is_none() => missing("layout"),
        () => Ok(()),
    }
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
