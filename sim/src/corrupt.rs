//! Connections that damage what is written to them.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use net::AnyStream;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How many writes are damaged, and which. Clones are the same.
#[derive(Clone, Debug)]
pub struct Noise {
    one_in: Arc<AtomicU32>,
    damaged: Arc<AtomicU64>,
    random: Arc<Mutex<StdRng>>,
}

impl Noise {
    /// None, until it is turned on.
    pub fn new(seed: u64) -> Self {
        let random = Arc::new(Mutex::new(StdRng::seed_from_u64(seed)));
        Self { one_in: Arc::default(), damaged: Arc::default(), random }
    }

    /// One in so many writes is damaged from now on; 0 for none.
    pub fn set(&self, one_in: u32) {
        self.one_in.store(one_in, Ordering::Relaxed);
    }

    /// Writes damaged so far.
    pub fn damaged(&self) -> u64 {
        self.damaged.load(Ordering::Relaxed)
    }

    pub(crate) fn over(&self, stream: AnyStream) -> AnyStream {
        Box::new(Noisy { stream, noise: self.clone() })
    }

    /// What is written instead of `bytes`, if this write is damaged.
    fn damage(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let one_in = self.one_in.load(Ordering::Relaxed);
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        if one_in == 0 || bytes.is_empty() || random.random_range(0..one_in) > 0 {
            return None;
        }
        self.damaged.fetch_add(1, Ordering::Relaxed);
        let mut changed = bytes.to_vec();
        let at = random.random_range(0..changed.len());
        if let Some(byte) = changed.get_mut(at) {
            *byte ^= 1 << random.random_range(0..8);
        }
        Some(changed)
    }
}

#[derive(Debug)]
struct Noisy {
    stream: AnyStream,
    noise: Noise,
}

impl AsyncRead for Noisy {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Noisy {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.noise.damage(bytes) {
            Some(changed) => Pin::new(&mut self.stream).poll_write(context, &changed),
            None => Pin::new(&mut self.stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
