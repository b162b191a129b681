//! TLS over another network, with certificates on both sides.

mod certificates;
mod member;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::BufReader;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::{AnyStream, Connect, Listen, Listener, Network, Traffic};
use certificates::Certificates;
pub use certificates::TlsError;

/// From a connection to the end of its handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Handshakes of one listener at once. One more, and the oldest is given up: whoever says nothing can not keep others out.
const PENDING: usize = 256;
/// TLS takes 4 KiB from below at a time: of bulk this much is read at once.
const BULK_READ: usize = 256 << 10;

/// TLS 1.3 over another network, for all but [`Traffic::Public`]. Both sides show a certificate of the same authority, which names
/// [`MEMBER`](crate::MEMBER).
///
/// The files are read again, by the next connection, when they have changed; while they are wrong the last right ones stay in use.
/// Connections that exist live on. None is resumed: each proves its certificates.
#[derive(Debug)]
pub struct Tls {
    below: Network,
    certificates: Arc<Certificates>,
}

impl Tls {
    /// With the PEM files of a folder, by the names that Kubernetes' TLS secrets have: `tls.crt` (this side's certificate, and what
    /// leads from it to the authority), `tls.key`, and `ca.crt` (the authority).
    ///
    /// # Errors
    /// Whoever put the files there has to mend them: the first that is wrong is named.
    pub fn new(below: Network, folder: &Path) -> Result<Self, TlsError> {
        Ok(Self { below, certificates: Arc::new(Certificates::read(folder)?) })
    }
}

#[async_trait]
impl Connect for Tls {
    async fn bind(&self, address: &str, traffic: Traffic) -> io::Result<Listener> {
        let listener = self.below.bind(address, traffic).await?;
        if traffic == Traffic::Public {
            return Ok(listener);
        }
        let certificates = Arc::clone(&self.certificates);
        Ok(Box::new(Listening {
            listener,
            traffic,
            certificates,
            handshakes: JoinSet::new(),
            pending: VecDeque::new(),
        }))
    }

    async fn connect(&self, address: &str, traffic: Traffic) -> io::Result<AnyStream> {
        let stream = self.below.connect(address, traffic).await?;
        if traffic == Traffic::Public {
            return Ok(stream);
        }
        let connector = TlsConnector::from(self.certificates.current().client);
        let handshake = connector.connect(self.certificates.peer(), buffered(stream, traffic));
        Ok(Box::new(timeout(HANDSHAKE, handshake).await??))
    }
}

fn buffered(stream: AnyStream, traffic: Traffic) -> AnyStream {
    match traffic {
        Traffic::Bulk => Box::new(BufReader::with_capacity(BULK_READ, stream)),
        Traffic::Calls | Traffic::Public => stream,
    }
}

#[derive(Debug)]
struct Listening {
    listener: Listener,
    traffic: Traffic,
    certificates: Arc<Certificates>,
    handshakes: JoinSet<Option<(AnyStream, SocketAddr)>>,
    /// The same, oldest first; some may have ended.
    pending: VecDeque<AbortHandle>,
}

impl Listening {
    fn greet(&mut self, stream: AnyStream, peer: SocketAddr) {
        if self.pending.len() >= PENDING {
            self.pending.retain(|handshake| !handshake.is_finished());
        }
        if self.pending.len() >= PENDING
            && let Some(oldest) = self.pending.pop_front()
        {
            oldest.abort();
        }
        let (certificates, traffic) = (Arc::clone(&self.certificates), self.traffic);
        self.pending.push_back(self.handshakes.spawn(async move {
            let acceptor = TlsAcceptor::from(certificates.current().server);
            match timeout(HANDSHAKE, acceptor.accept(buffered(stream, traffic))).await {
                Ok(Ok(stream)) => return Some((Box::new(stream) as AnyStream, peer)),
                Ok(Err(gone)) if gone.kind() == io::ErrorKind::UnexpectedEof => {
                    tracing::debug!(%peer, "a connection ended before its handshake");
                }
                Ok(Err(fault)) => tracing::warn!(%peer, %fault, "a connection is refused"),
                Err(_) => tracing::warn!(%peer, "a connection made no handshake in time"),
            }
            None
        }));
    }
}

#[async_trait]
impl Listen for Listening {
    async fn accept(&mut self) -> io::Result<(AnyStream, SocketAddr)> {
        loop {
            tokio::select! {
                biased;
                Some(ended) = self.handshakes.join_next() => {
                    if let Ok(Some(accepted)) = ended {
                        return Ok(accepted);
                    }
                }
                accepted = self.listener.accept() => {
                    let (stream, peer) = accepted?;
                    self.greet(stream, peer);
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

#[cfg(test)]
mod tests;
