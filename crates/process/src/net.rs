//! Listeners, bound before anything is built so that an address in use is an error at start.

use std::{io, net::SocketAddr, time::Duration};

use ::net::{AnyStream, Listener, Network, Traffic};

/// Before another connection is accepted after one could not be: out of descriptors, most likely, which come back.
const PAUSE: Duration = Duration::from_millis(50);

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
pub async fn bind(
    network: &Network,
    traffic: Traffic,
    flag: &'static str,
    address: &str,
) -> Result<(Listener, SocketAddr), BindError> {
    let named = |source| BindError { flag, address: address.to_owned(), source };
    let listener = network.bind(address, traffic).await.map_err(named)?;
    let local = listener.local_addr().map_err(named)?;
    Ok((listener, local))
}

/// The next connection, however long it takes.
pub(crate) async fn accepted(listener: &mut Listener) -> (AnyStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(fault) => {
                tracing::warn!(%fault, "no connection accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
