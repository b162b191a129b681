//! The simulated network, as the programs' own seam takes it.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use async_trait::async_trait;
use net::{AnyStream, Connect, Listen, Listener, Traffic};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use turmoil::net::{TcpListener, TcpStream};

use crate::Noise;

/// For how long a replayed connection stays, whatever it is told.
const REPLAY: Duration = Duration::from_secs(5);

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
    async fn bind(&self, address: &str, traffic: Traffic) -> io::Result<Listener> {
        let listener = TcpListener::bind(address).await?;
        let noise = (traffic == Traffic::Bulk).then(|| self.noise.clone());
        Ok(Box::new(Listening { listener, host: self.host, noise }))
    }

    async fn connect(&self, address: &str, traffic: Traffic) -> io::Result<AnyStream> {
        let stream: AnyStream = Box::new(TcpStream::connect(address).await?);
        if traffic != Traffic::Bulk {
            return Ok(stream);
        }
        if let Some(bytes) = self.noise.replay(address) {
            tokio::spawn(replay(address.to_owned(), bytes));
        }
        Ok(self.noise.over_to(address, stream))
    }
}

/// Says again what was said on an earlier connection, and hears whatever is answered.
async fn replay(address: String, bytes: Vec<u8>) {
    let said = async {
        let mut stream = TcpStream::connect(&address).await?;
        stream.write_all(&bytes).await?;
        stream.read_to_end(&mut Vec::new()).await
    };
    // Refused or not, nobody waits for it.
    let _ = tokio::time::timeout(REPLAY, said).await;
}

struct Listening {
    listener: TcpListener,
    host: IpAddr,
    /// On what is accepted.
    noise: Option<Noise>,
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
        let stream: AnyStream = Box::new(stream);
        let stream = match &self.noise {
            Some(noise) => noise.over(stream),
            None => stream,
        };
        Ok((stream, peer))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        let mut address = self.listener.local_addr()?;
        // Others reach it under the host's own address.
        address.set_ip(self.host);
        Ok(address)
    }
}
