use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::io::poll_read_buf;

use crate::frame::{Frame, FrameError, FrameReader, Tagger};
use crate::key::{Direction, TransferKey};
use crate::landing::Landing;
use crate::manifest::Manifest;
use crate::ticket::LinkId;

/// Buffers given to the socket in one call.
const SLICES: usize = 32;

/// A connection of any kind.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// One side's stream of frames: what is to be written waits in order and leaves from where it lies, what arrives is read
/// in place.
pub(crate) struct Wire {
    stream: Box<dyn Stream>,
    reader: FrameReader,
    tagger: Tagger,
    unwritten: VecDeque<Bytes>,
    /// The stream may hold back some of what it took, as TLS does.
    unflushed: bool,
    /// A write failed: the peer is gone, and nothing more is written.
    broken: bool,
    /// A receiver's place for a connection.
    place: Option<OwnedSemaphorePermit>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("reader", &self.reader).field("broken", &self.broken).finish()
    }
}

/// What one turn of a wire brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Everything that waited is written.
    Written,
    Read,
    /// The peer will send no more.
    Ended,
}

impl Wire {
    /// `outgoing` is the direction of what this side writes.
    pub(crate) fn new(stream: impl Stream + 'static, outgoing: Direction, landing: Landing) -> Wire {
        let incoming = match outgoing {
            Direction::ToReceiver => Direction::ToSender,
            Direction::ToSender => Direction::ToReceiver,
        };
        Wire {
            stream: Box::new(stream),
            reader: FrameReader::new(incoming, landing),
            tagger: Tagger::new(outgoing),
            unwritten: VecDeque::new(),
            unflushed: false,
            broken: false,
            place: None,
        }
    }

    /// Keeps the place for as long as the connection lives.
    pub(crate) fn occupying(mut self, place: Option<OwnedSemaphorePermit>) -> Wire {
        self.place = place;
        self
    }

    pub(crate) fn trust(&mut self, key: &TransferKey, link: LinkId, manifest: Manifest) {
        self.reader.trust(key.clone(), link, manifest);
        self.tagger.trust(key.clone(), link);
    }

    /// Queues a frame. A payload's digest is taken now: a segment fits into the cache, where the kernel's copy finds it, and head,
    /// payload and digest leave in one call, others' with them.
    pub(crate) fn push(&mut self, frame: Frame) {
        self.unwritten.push_back(self.tagger.head(&frame));
        if let Frame::Segment { id, payload, .. } = frame {
            let mut digest = self.tagger.digest();
            digest.up_to(&payload);
            let digest = Bytes::copy_from_slice(&digest.of(&id).to_le_bytes());
            self.unwritten.extend([payload, digest]);
        }
    }

    /// The next frame among the bytes that have arrived.
    pub(crate) fn frame(&mut self) -> Result<Option<Frame>, FrameError> {
        self.reader.next()
    }

    /// Bytes of the segment that is arriving.
    pub(crate) fn staged(&self) -> u64 {
        self.reader.staged()
    }

    /// Writes and reads what the stream will take and give now. Progress is kept here, so a turn may be given up.
    pub(crate) fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Turn>> {
        if (self.unflushed || !self.unwritten.is_empty())
            && !self.broken
            && self.poll_write_all(cx)?.is_ready()
        {
            return Poll::Ready(Ok(Turn::Written));
        }
        let mut space = self.reader.space();
        match poll_read_buf(Pin::new(&mut self.stream), cx, &mut space)? {
            Poll::Ready(0) => Poll::Ready(Ok(Turn::Ended)),
            Poll::Ready(_) => Poll::Ready(Ok(Turn::Read)),
            Poll::Pending => Poll::Pending,
        }
    }

    pub(crate) async fn turn(&mut self) -> io::Result<Turn> {
        poll_fn(|cx| self.poll_turn(cx)).await
    }

    /// Ready when nothing is left here or in the stream.
    fn poll_write_all(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unwritten.is_empty() {
            ready!(self.poll_write(cx))?;
        }
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(cx));
        self.unflushed = false;
        self.broken |= flushed.is_err();
        Poll::Ready(flushed)
    }

    /// Ready when something was written.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.unwritten) {
            *slice = IoSlice::new(piece);
            count += 1;
        }
        let fault = match Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..count]) {
            Poll::Ready(Ok(written)) if written > 0 => {
                self.unflushed = true;
                self.consume(written);
                return Poll::Ready(Ok(()));
            }
            Poll::Ready(Ok(_)) => io::ErrorKind::WriteZero.into(),
            Poll::Ready(Err(fault)) => fault,
            Poll::Pending => return Poll::Pending,
        };
        self.broken = true;
        Poll::Ready(Err(fault))
    }

    fn consume(&mut self, mut written: usize) {
        while let Some(first) = self.unwritten.front_mut() {
            if written < first.len() {
                return first.advance(written);
            }
            written -= first.len();
            self.unwritten.pop_front();
        }
    }

    /// Writes out what waits, tells the peer that this was all, and reads until it has gone too: closing with unread
    /// bytes would reset the connection and could take our last words with it.
    pub(crate) async fn close(mut self, within: Duration) {
        if self.broken {
            return;
        }
        let farewell = async {
            poll_fn(|cx| self.poll_write_all(cx)).await?;
            poll_fn(|cx| Pin::new(&mut self.stream).poll_shutdown(cx)).await?;
            let mut rest = vec![0; 16 << 10];
            loop {
                let mut rest = rest.as_mut_slice();
                let read = poll_fn(|cx| poll_read_buf(Pin::new(&mut self.stream), cx, &mut rest)).await?;
                if read == 0 {
                    return io::Result::Ok(());
                }
            }
        };
        match tokio::time::timeout(within, farewell).await {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => tracing::debug!(%fault, "connection ended before the farewell"),
            Err(_) => tracing::debug!("peer did not take the farewell in time"),
        }
    }
}

/// The connections of one transfer.
#[derive(Debug, Default)]
pub(crate) struct Wires {
    wires: Vec<(LinkId, Wire)>,
    /// The one looked at first.
    first: usize,
}

impl Wires {
    pub(crate) fn insert(&mut self, link: LinkId, wire: Wire) {
        self.wires.push((link, wire));
    }

    pub(crate) fn get(&mut self, link: LinkId) -> Option<&mut Wire> {
        self.wires.iter_mut().find_map(|(id, wire)| (*id == link).then_some(wire))
    }

    /// Queues a frame; a link that is gone takes its frames with it.
    pub(crate) fn push(&mut self, link: LinkId, frame: Frame) {
        if let Some(wire) = self.get(link) {
            wire.push(frame);
        }
    }

    pub(crate) fn remove(&mut self, link: LinkId) -> Option<Wire> {
        let at = self.wires.iter().position(|(id, _)| *id == link)?;
        Some(self.wires.swap_remove(at).1)
    }

    /// Bytes of segments that are arriving.
    pub(crate) fn staged(&self) -> u64 {
        self.wires.iter().map(|(_, wire)| wire.staged()).sum()
    }

    /// The next turn of any of them, each in its turn; never ready without any.
    pub(crate) async fn turn(&mut self) -> (LinkId, io::Result<Turn>) {
        poll_fn(|cx| {
            let count = self.wires.len();
            for step in 0..count {
                let at = (self.first + step) % count;
                let (link, wire) = &mut self.wires[at];
                if let Poll::Ready(turn) = wire.poll_turn(cx) {
                    self.first = at + 1;
                    return Poll::Ready((*link, turn));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Closes all, each with its last words.
    pub(crate) async fn close(self, within: Duration) {
        let mut farewells = tokio::task::JoinSet::new();
        for (_, wire) in self.wires {
            farewells.spawn(wire.close(within));
        }
        farewells.join_all().await;
    }
}
