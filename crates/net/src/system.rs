use std::io;
use std::net::SocketAddr;

use async_trait::async_trait;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};

use crate::{AnyStream, Connect, Listen, Listener, Traffic};

/// Kernel buffers of a bulk connection, from its first byte on: they would grow to it, but each transfer has new ones.
const BULK_BYTES: usize = 4 << 20;

/// The system's TCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

#[async_trait]
impl Connect for System {
    async fn bind(&self, address: &str, traffic: Traffic) -> io::Result<Listener> {
        let listener = TcpListener::bind(address).await?;
        if traffic == Traffic::Bulk {
            // Accepted connections have it from their first byte on, and offer all of it: set later it would be offered bit by bit.
            SockRef::from(&listener).set_recv_buffer_size(BULK_BYTES)?;
        }
        Ok(Box::new(Listening { listener, traffic }))
    }

    async fn connect(&self, address: &str, traffic: Traffic) -> io::Result<AnyStream> {
        let stream = TcpStream::connect(address).await?;
        tune(&stream, traffic)?;
        Ok(Box::new(stream))
    }
}

#[derive(Debug)]
struct Listening {
    listener: TcpListener,
    traffic: Traffic,
}

#[async_trait]
impl Listen for Listening {
    async fn accept(&mut self) -> io::Result<(AnyStream, SocketAddr)> {
        loop {
            let (stream, peer) = self.listener.accept().await?;
            // A connection that is gone before it was accepted is nobody's error.
            if tune(&stream, self.traffic).is_ok() {
                return Ok((Box::new(stream), peer));
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

fn tune(stream: &TcpStream, traffic: Traffic) -> io::Result<()> {
    stream.set_nodelay(true)?;
    if traffic == Traffic::Bulk {
        let socket = SockRef::from(stream);
        socket.set_send_buffer_size(BULK_BYTES)?;
        socket.set_recv_buffer_size(BULK_BYTES)?;
    }
    Ok(())
}
