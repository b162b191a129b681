//! The simulated network, as the programs' own seam takes it.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use async_trait::async_trait;
use net::{AnyStream, Connect, Listen, Listener, Traffic};
use turmoil::net::{TcpListener, TcpStream};

use crate::Noise;

/// What one host reaches and where it is reached.
#[derive(Clone, Debug)]
pub struct Simulated {
    host: IpAddr,
    noise: Noise,
}

impl Simulated {
    /// The network as `host` sees it. Transfers are as noisy as `noise` says.
    pub fn new(host: IpAddr, noise: Noise) -> Self {
        Self { host, noise }
    }
}

#[async_trait]
impl Connect for Simulated {
    async fn bind(&self, address: &str, _: Traffic) -> io::Result<Listener> {
        let listener = TcpListener::bind(address).await?;
        Ok(Box::new(Listening { listener, host: self.host }))
    }

    async fn connect(&self, address: &str, traffic: Traffic) -> io::Result<AnyStream> {
        let stream: AnyStream = Box::new(TcpStream::connect(address).await?);
        Ok(if traffic == Traffic::Bulk { self.noise.over(stream) } else { stream })
    }
}

struct Listening {
    listener: TcpListener,
    host: IpAddr,
}

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listening").field("host", &self.host).finish_non_exhaustive()
    }
}

#[async_trait]
impl Listen for Listening {
    async fn accept(&mut self) -> io::Result<(AnyStream, SocketAddr)> {
        let (stream, peer) = self.listener.accept().await?;
        Ok((Box::new(stream), peer))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        let mut address = self.listener.local_addr()?;
        // Others reach it under the host's own address.
        address.set_ip(self.host);
        Ok(address)
    }
}
