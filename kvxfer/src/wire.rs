use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::io::poll_read_buf;

use crate::frame::{Frame, FrameError, FrameReader, Tagger};
use crate::key::{Digest, Direction, TransferKey};
use crate::landing::Landing;
use crate::local::{Borrowed, Offer};
use crate::manifest::Manifest;
use crate::segment::SegmentId;
use crate::ticket::LinkId;

mod wires;

pub(crate) use wires::Wires;

/// Buffers given to the socket in one call.
const SLICES: usize = 32;

/// A payload of so many bytes leaves before its digest is taken: the socket's copy brings it into the cache, and the peer has something
/// to do meanwhile.
const LARGE: usize = 64 << 10;
/// Smaller payloads do not stay in memory: the call that reads them there costs more than their bytes beside their head.
const LEAST_LENT: usize = 8 << 10;

/// A connection of any kind.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// One side's stream of frames: what is to be written waits in order and leaves from where it lies, what arrives is read
/// in place.
pub(crate) struct Wire {
    stream: Box<dyn Stream>,
    reader: FrameReader,
    tagger: Tagger,
    unwritten: VecDeque<Piece>,
    /// The stream may hold back some of what it took, as TLS does.
    unflushed: bool,
    /// A write failed: the peer is gone, and nothing more is written.
    broken: bool,
    /// This side's memory, for the peer to read.
    lent: Lending,
    /// Of a connection that was accepted.
    place: Option<Place>,
}

/// Something to be written.
enum Piece {
    Bytes(Bytes),
    /// A large payload; its digest comes in its place.
    Payload {
        id: SegmentId,
        whole: Bytes,
        written: usize,
        digest: Box<Digest>,
    },
}

impl Piece {
    fn left(&self) -> &[u8] {
        match self {
            Piece::Bytes(left) => left,
            Piece::Payload { whole, written, .. } => &whole[*written..],
        }
    }
}

/// Whether the peer reads this side's memory. What it reads stays until it is acknowledged.
enum Lending {
    No,
    Offered(#[expect(dead_code, reason = "the peer reads the mark in it")] Offer),
    Accepted,
}

/// A receiver's place for a connection, and who made it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) peer: SocketAddr,
    pub(crate) _permit: OwnedSemaphorePermit,
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
            lent: Lending::No,
            place: None,
        }
    }

    /// Keeps the place for as long as the connection lives.
    pub(crate) fn occupying(mut self, place: Option<Place>) -> Wire {
        self.place = place;
        self
    }

    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.place.as_ref().map(|place| place.peer)
    }

    pub(crate) fn trust(&mut self, key: &TransferKey, link: LinkId, manifest: Manifest) {
        self.reader.trust(key.clone(), link, manifest);
        self.tagger.trust(key.clone(), link);
    }

    /// What comes is the next transfer's, on the connection of one that is over.
    pub(crate) fn renew(&mut self) {
        self.reader.renew();
        self.tagger.renew();
    }

    /// Payloads stay in this side's memory, once the peer says that it can read it.
    pub(crate) fn lend(&mut self, offer: Offer) {
        self.lent = Lending::Offered(offer);
    }

    /// The peer has answered the greeting. Says whether it reads payloads from memory, if that was offered.
    pub(crate) fn welcomed(&mut self, borrows: bool) -> Option<bool> {
        let offered = !matches!(self.lent, Lending::No);
        self.lent = if offered && borrows { Lending::Accepted } else { Lending::No };
        offered.then_some(borrows)
    }

    pub(crate) fn borrow(&mut self, borrowed: Borrowed) {
        self.reader.borrow(borrowed);
    }

    pub(crate) fn borrows(&self) -> bool {
        self.reader.borrows()
    }

    /// Whether nothing has come that was not given out.
    pub(crate) fn is_read(&self) -> bool {
        self.reader.is_empty()
    }

    /// Whether nothing waits to be written.
    pub(crate) fn is_written(&self) -> bool {
        !self.unflushed && self.unwritten.is_empty()
    }

    /// Reads what has come already, without waiting. Says whether the connection lives, for all that is known here.
    pub(crate) fn look(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        !self.broken && !matches!(self.poll_read(&mut cx), Poll::Ready(Ok(Turn::Ended) | Err(_)))
    }

    /// Writes what the stream takes now. What it does not, or why, comes out of a later turn.
    pub(crate) fn flush(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        _ = self.poll_write_all(&mut cx);
    }

    /// Queues a frame. Small ones leave together in one call; a large payload's digest is taken when it has been written.
    pub(crate) fn push(&mut self, frame: Frame) {
        let Frame::Segment { sequence, id, payload, .. } = &frame else {
            return self.unwritten.push_back(Piece::Bytes(self.tagger.head(&frame)));
        };
        let mut digest = self.tagger.digest();
        let lent = matches!(self.lent, Lending::Accepted) && payload.len() >= LEAST_LENT;
        if lent || payload.len() < LARGE {
            digest.up_to(payload);
        }
        if lent {
            let head = self.tagger.lent(*sequence, id, payload, digest.of(id));
            return self.unwritten.push_back(Piece::Bytes(head));
        }
        self.unwritten.push_back(Piece::Bytes(self.tagger.head(&frame)));
        let (id, whole) = (*id, payload.clone());
        if payload.len() < LARGE {
            let digest = Bytes::copy_from_slice(&digest.of(&id).to_le_bytes());
            self.unwritten.extend([whole, digest].map(Piece::Bytes));
        } else {
            let digest = Box::new(digest);
            self.unwritten.push_back(Piece::Payload { id, whole, written: 0, digest });
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
            && self.poll_write_payload(cx)?.is_ready()
        {
            return Poll::Ready(Ok(Turn::Written));
        }
        self.poll_read(cx)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Turn>> {
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

    /// Ready when nothing is left, or nothing but the end of a payload: that leaves with what may be queued now.
    fn poll_write_payload(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unwritten.is_empty() {
            if ready!(self.poll_write(cx))? && self.unwritten.len() == 1 {
                return Poll::Ready(Ok(()));
            }
        }
        self.poll_write_all(cx)
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

    /// Ready when something was written; says whether that was the last of a large payload.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.unwritten) {
            *slice = IoSlice::new(piece.left());
            count += 1;
            // what follows begins with its digest
            if matches!(piece, Piece::Payload { .. }) {
                break;
            }
        }
        let fault = match Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..count]) {
            Poll::Ready(Ok(written)) if written > 0 => {
                self.unflushed = true;
                return Poll::Ready(Ok(self.consume(written)));
            }
            Poll::Ready(Ok(_)) => io::ErrorKind::WriteZero.into(),
            Poll::Ready(Err(fault)) => fault,
            Poll::Pending => return Poll::Pending,
        };
        self.broken = true;
        Poll::Ready(Err(fault))
    }

    fn consume(&mut self, mut count: usize) -> bool {
        while let Some(first) = self.unwritten.front_mut() {
            let left = first.left().len();
            match first {
                Piece::Bytes(bytes) if count < left => {
                    bytes.advance(count);
                    return false;
                }
                Piece::Bytes(_) => _ = self.unwritten.pop_front(),
                Piece::Payload { id, whole, written, digest } => {
                    // it is in the cache: it has just been copied
                    *written += count.min(left);
                    digest.up_to(&whole[..*written]);
                    if count < left {
                        return false;
                    }
                    *first = Piece::Bytes(Bytes::copy_from_slice(&digest.of(id).to_le_bytes()));
                    return true;
                }
            }
            count -= left;
        }
        false
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
