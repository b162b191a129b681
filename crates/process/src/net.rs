//! Listeners, bound before anything is built so that an address in use is an error at start.

use std::{io, net::SocketAddr};

use tokio::net::TcpListener;

/// An address that could not be bound.
#[derive(Debug, thiserror::Error)]
#[error("--{flag} {address}: {source}")]
pub struct BindError {
    /// The flag that named the address.
    pub flag: &'static str,
    /// As given.
    pub address: String,
    /// From the system.
    pub source: io::Error,
}

/// Binds `address` (host:port, port 0 for any); `flag` is named in the error.
pub async fn bind(flag: &'static str, address: &str) -> Result<(TcpListener, SocketAddr), BindError> {
    let named = |source| BindError { flag, address: address.to_owned(), source };
    let listener = TcpListener::bind(address).await.map_err(named)?;
    let local = listener.local_addr().map_err(named)?;
    Ok((listener, local))
}
