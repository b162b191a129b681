use std::io;
use std::net::SocketAddr;

use async_trait::async_trait;
use tokio::net::{TcpListener, TcpStream};

use crate::{AnyStream, Connect, Listen, Listener};

/// The system's TCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

#[async_trait]
impl Connect for System {
    async fn bind(&self, address: &str) -> io::Result<Listener> {
        Ok(Box::new(TcpListener::bind(address).await?))
    }

    async fn connect(&self, address: &str) -> io::Result<AnyStream> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}

#[async_trait]
impl Listen for TcpListener {
    async fn accept(&mut self) -> io::Result<(AnyStream, SocketAddr)> {
        loop {
            let (stream, peer) = TcpListener::accept(self).await?;
            // A connection that is gone before it was accepted is nobody's error.
            if stream.set_nodelay(true).is_ok() {
                return Ok((Box::new(stream), peer));
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        TcpListener::local_addr(self)
    }
}
