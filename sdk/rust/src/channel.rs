//! How routers are reached: TLS, and what a channel to them needs.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use tokio::{net::lookup_host, sync::mpsc, task::JoinHandle, time::sleep};
use tonic::{
    Code,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, channel::Change},
};

use crate::{
    address::Address,
    error::{Error, Reason},
};

/// Largest message sent or received, in bytes, as at the router: a prompt of a million tokens fits.
pub const MESSAGE_LIMIT: usize = 64 << 20;

/// How often a name is looked up again.
const RESOLVE_EVERY: Duration = Duration::from_secs(30);
/// Addresses that a name may gain or lose at once before the channel has taken them in.
const CHANGES: usize = 64;

/// Certificates, as PEM. Without them: the system's authorities, and no certificate of one's own.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    pub ca: Option<Vec<u8>>,
    pub certificate: Option<Vec<u8>>,
    pub key: Option<Vec<u8>>,
    /// Name that the router's certificate must have, if not the URL's.
    pub server_name: Option<String>,
}

/// A channel to all addresses of a name, which are looked up again for as long as this lives.
#[derive(Debug)]
pub(crate) struct Connections {
    pub(crate) channel: Channel,
    resolver: Option<JoinHandle<()>>,
}

impl Drop for Connections {
    fn drop(&mut self) {
        if let Some(resolver) = &self.resolver {
            resolver.abort();
        }
    }
}

impl Connections {
    /// Connects at the first call.
    pub(crate) async fn to(address: Address, tls: Option<Tls>) -> Result<Self, Error> {
        if let Some(ip) = address.ip() {
            let one = endpoint(&address, tls.as_ref(), SocketAddr::new(ip, address.port))?;
            return Ok(Self { channel: one.connect_lazy(), resolver: None });
        }
        // Routers are replicas behind one name; one long connection would leave all but one idle.
        let (channel, changes) = Channel::balance_channel(CHANGES);
        let mut known = BTreeSet::new();
        let failed = |error: std::io::Error| {
            Error::new(Reason::Unreachable, Code::Unavailable, format!("{}: {error}", address.host))
        };
        let found = resolve(&address).await.map_err(failed)?;
        update(&address, tls.as_ref(), &mut known, found, &changes).await?;
        let resolver = tokio::spawn(async move {
            loop {
                sleep(RESOLVE_EVERY).await;
                // A name that can't be looked up for now leaves what is known.
                if let Ok(found) = resolve(&address).await
                    && update(&address, tls.as_ref(), &mut known, found, &changes).await.is_err()
                {
                    return;
                }
            }
        });
        Ok(Self { channel, resolver: Some(resolver) })
    }
}

async fn resolve(address: &Address) -> std::io::Result<BTreeSet<SocketAddr>> {
    Ok(lookup_host((address.host.as_str(), address.port)).await?.collect())
}

async fn update(
    address: &Address,
    tls: Option<&Tls>,
    known: &mut BTreeSet<SocketAddr>,
    found: BTreeSet<SocketAddr>,
    changes: &mpsc::Sender<Change<SocketAddr, Endpoint>>,
) -> Result<(), Error> {
    let closed = |_| Error::new(Reason::Unreachable, Code::Unavailable, "the channel is closed");
    for &new in found.difference(known) {
        changes.send(Change::Insert(new, endpoint(address, tls, new)?)).await.map_err(closed)?;
    }
    for &gone in known.difference(&found) {
        changes.send(Change::Remove(gone)).await.map_err(closed)?;
    }
    *known = found;
    Ok(())
}

/// One address of a name.
fn endpoint(address: &Address, tls: Option<&Tls>, at: SocketAddr) -> Result<Endpoint, Error> {
    let wrong = |error: tonic::transport::Error| Error::invalid("tls", format!("{error:?}"));
    let scheme = if address.tls { "https" } else { "http" };
    let origin = address.origin().parse().map_err(|_| Error::invalid("url", "has no origin"))?;
    let plain = Endpoint::from_shared(format!("{scheme}://{at}"))
        .and_then(|endpoint| endpoint.user_agent(concat!("tandem-sdk-rust/", env!("CARGO_PKG_VERSION"))))
        .map_err(|error| Error::invalid("url", format!("{error:?}")))?
        .origin(origin)
        .connect_timeout(Duration::from_secs(5))
        // A request may wait long for its first token: only pings tell a slow router from a dead connection.
        .http2_keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(10))
        .http2_adaptive_window(true)
        .tcp_nodelay(true);
    match (address.tls, tls) {
        (false, None) => Ok(plain),
        (false, Some(_)) => Err(Error::invalid("tls", "needs an https url")),
        (true, tls) => plain.tls_config(tls_config(address, tls)).map_err(wrong),
    }
}

fn tls_config(address: &Address, tls: Option<&Tls>) -> ClientTlsConfig {
    let name = tls.and_then(|tls| tls.server_name.clone()).unwrap_or_else(|| address.host.clone());
    let mut config = ClientTlsConfig::new().domain_name(name);
    config = match tls.and_then(|tls| tls.ca.as_ref()) {
        Some(ca) => config.ca_certificate(Certificate::from_pem(ca)),
        None => config.with_native_roots(),
    };
    match tls.and_then(|tls| tls.certificate.as_ref().zip(tls.key.as_ref())) {
        Some((certificate, key)) => config.identity(Identity::from_pem(certificate, key)),
        None => config,
    }
}

#[cfg(test)]
mod tests;
