//! The way to a socket, as an argument: the system's, TLS over it, or one that a simulation makes.
//!
//! Programs hand [`cluster`]'s to whatever binds or connects; a simulation hands its own [`Network`], and everything above runs as
//! it is. This room calls nobody.

mod grpc;
mod system;
mod tls;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

pub use grpc::connector;
pub use system::System;
pub use tls::{Tls, TlsError};

/// The DNS name in the certificate of every process of a cluster: they come and go under any address.
pub const MEMBER: &str = "tandem";

/// A connection.
pub trait Stream: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin> Stream for S {}

/// A connection of whatever network.
pub type AnyStream = Box<dyn Stream>;

/// Where connections are accepted.
#[async_trait]
pub trait Listen: fmt::Debug + Send {
    /// The next connection, and who made it. May be dropped and called again.
    ///
    /// # Errors
    /// What the network says. Calling again helps once what it lacked is there.
    async fn accept(&mut self) -> io::Result<(AnyStream, SocketAddr)>;

    /// Where it listens.
    ///
    /// # Errors
    /// What the network says.
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

/// A listener of whatever network.
pub type Listener = Box<dyn Listen>;

/// What a connection is for. Either way every write leaves at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Small messages that somebody waits for.
    Calls,
    /// Many megabytes, as fast as they go, over connections that last no longer.
    Bulk,
    /// Calls from outside the cluster: clients, probes, scrapers. They have no certificate of it.
    Public,
}

/// A network.
#[async_trait]
pub trait Connect: fmt::Debug + Send + Sync {
    /// Listens at `address` (host:port, port 0 for any).
    ///
    /// # Errors
    /// What the network says.
    async fn bind(&self, address: &str, traffic: Traffic) -> io::Result<Listener>;

    /// Connects to `address` (host:port).
    ///
    /// # Errors
    /// What the network says.
    async fn connect(&self, address: &str, traffic: Traffic) -> io::Result<AnyStream>;
}

/// Some network. Clones are the same.
pub type Network = Arc<dyn Connect>;

/// The system's network.
pub fn system() -> Network {
    Arc::new(System)
}

/// The network between a cluster's processes: the system's, and with a folder of certificates [`Tls`] over it.
///
/// # Errors
/// A file of the folder is wrong.
pub fn cluster(tls: Option<&Path>) -> Result<Network, TlsError> {
    match tls {
        Some(folder) => Ok(Arc::new(Tls::new(system(), folder)?)),
        None => Ok(system()),
    }
}
