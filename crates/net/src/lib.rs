//! The way to a socket, as an argument: the system's, or one that a simulation makes.
//!
//! Programs hand [`System`] to whatever binds or connects; a simulation hands its own [`Network`], and everything above runs as
//! it is. This room calls nobody.

mod grpc;
mod system;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

pub use grpc::connector;
pub use system::System;

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
