//! Connections that damage what is written to them, as a broken box in the middle would.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use net::AnyStream;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Of how many new connections one is followed by the bytes of an earlier one to the same address, while there is noise.
const REPLAYED: u32 = 4;
/// What is remembered of a connection.
const REMEMBERED: usize = 1 << 20;

/// What becomes of one write, or of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Damage {
    /// A bit of it is another.
    Flipped,
    /// It comes twice.
    Doubled,
    /// It comes after the next one.
    Swapped,
    /// It never comes.
    Dropped,
    /// A part of it comes, then the connection ends.
    CutOff,
    /// All that was written to an earlier connection is written to a new one again.
    Replayed,
}

impl Damage {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Flipped, Self::Doubled, Self::Swapped, Self::Dropped, Self::CutOff, Self::Replayed];
}

/// How many writes are damaged, and which. Clones are the same.
#[derive(Clone, Debug)]
pub struct Noise(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    one_in: u32,
    random: StdRng,
    done: BTreeMap<Damage, u64>,
    /// What was written to the connection that ended last, by address.
    earlier: BTreeMap<String, Vec<u8>>,
}

impl Noise {
    /// None, until it is turned on.
    pub fn new(seed: u64) -> Self {
        let random = StdRng::seed_from_u64(seed);
        let state = State { one_in: 0, random, done: BTreeMap::new(), earlier: BTreeMap::new() };
        Self(Arc::new(Mutex::new(state)))
    }

    /// One in so many writes is damaged from now on; 0 for none.
    pub fn set(&self, one_in: u32) {
        self.state().one_in = one_in;
    }

    /// What was done so far, and how often.
    pub fn done(&self) -> BTreeMap<Damage, u64> {
        self.state().done.clone()
    }

    /// A connection that was accepted.
    pub(crate) fn over(&self, stream: AnyStream) -> AnyStream {
        Box::new(Noisy::new(self.clone(), stream, None))
    }

    /// A connection that was made to `address`.
    pub(crate) fn over_to(&self, address: &str, stream: AnyStream) -> AnyStream {
        Box::new(Noisy::new(self.clone(), stream, Some((address.to_owned(), Vec::new()))))
    }

    /// What is to be written to a further connection to `address`, if it is to be.
    pub(crate) fn replay(&self, address: &str) -> Option<Vec<u8>> {
        let mut state = self.state();
        if state.one_in == 0 || state.random.random_range(0..REPLAYED) > 0 {
            return None;
        }
        let earlier = state.earlier.get(address).filter(|bytes| !bytes.is_empty()).cloned()?;
        *state.done.entry(Damage::Replayed).or_default() += 1;
        Some(earlier)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the next write is damaged, and where if that matters: a byte and a bit of it.
    fn damage(&self, length: usize) -> Option<(Damage, usize, u8)> {
        let mut state = self.state();
        let State { one_in, random, done, .. } = &mut *state;
        if *one_in == 0 || length == 0 || random.random_range(0..*one_in) > 0 {
            return None;
        }
        let kind = match random.random_range(0..8) {
            0..=3 => Damage::Flipped,
            4 => Damage::Doubled,
            5 => Damage::Swapped,
            6 => Damage::Dropped,
            _ => Damage::CutOff,
        };
        *done.entry(kind).or_default() += 1;
        Some((kind, random.random_range(0..length), 1 << random.random_range(0..8)))
    }
}

#[derive(Debug)]
struct Noisy {
    noise: Noise,
    stream: AnyStream,
    /// Taken, and not yet written.
    queue: VecDeque<Bytes>,
    /// Comes after what is written next.
    later: Option<Bytes>,
    end: End,
    /// Where to and what was written.
    written: Option<(String, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// After what is queued.
    Near,
    Over,
}

impl Noisy {
    fn new(noise: Noise, stream: AnyStream, written: Option<(String, Vec<u8>)>) -> Self {
        Self { noise, stream, queue: VecDeque::new(), later: None, end: End::Open, written }
    }

    /// Writes what is queued.
    fn poll_queued(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(first) = self.queue.front_mut() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, first))?;
            first.advance(written);
            if first.is_empty() {
                self.queue.pop_front();
            }
        }
        if self.end == End::Near {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
            self.end = End::Over;
        }
        Poll::Ready(Ok(()))
    }

    /// Queues what becomes of a write.
    fn queue(&mut self, bytes: &[u8], damage: Option<(Damage, usize, u8)>) {
        let whole = Bytes::copy_from_slice(bytes);
        let late = self.later.take();
        match damage {
            None | Some((Damage::Replayed, ..)) => self.queue.push_back(whole),
            Some((Damage::Flipped, at, bit)) => {
                let mut changed = bytes.to_vec();
                if let Some(byte) = changed.get_mut(at) {
                    *byte ^= bit;
                }
                self.queue.push_back(changed.into());
            }
            Some((Damage::Doubled, ..)) => self.queue.extend([whole.clone(), whole]),
            Some((Damage::Swapped, ..)) => self.later = Some(whole),
            Some((Damage::Dropped, ..)) => {}
            Some((Damage::CutOff, at, _)) => {
                self.queue.push_back(whole.slice(..at));
                self.end = End::Near;
            }
        }
        self.queue.extend(late);
    }

    fn remember(&mut self, bytes: &[u8]) {
        if let Some((_, written)) = &mut self.written {
            let room = REMEMBERED.saturating_sub(written.len());
            written.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }
}

impl Drop for Noisy {
    fn drop(&mut self) {
        if let Some((address, written)) = self.written.take() {
            self.noise.state().earlier.insert(address, written);
        }
    }
}

impl AsyncRead for Noisy {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Whoever only reads from now on has written what is queued.
        let _written = self.poll_queued(context);
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Noisy {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_queued(context))?;
        if self.end == End::Over {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let damage = self.noise.damage(bytes.len());
        if damage.is_none() && self.later.is_none() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
            self.remember(&bytes[..written]);
            return Poll::Ready(Ok(written));
        }
        self.remember(bytes);
        self.queue(bytes, damage);
        if let Poll::Ready(Err(fault)) = self.poll_queued(context) {
            return Poll::Ready(Err(fault));
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_queued(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let late = self.later.take();
        self.queue.extend(late);
        if self.end == End::Open {
            self.end = End::Near;
        }
        self.poll_queued(context)
    }
}
