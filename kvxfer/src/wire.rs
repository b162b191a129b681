use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::poll_read_buf;

use crate::frame::{Frame, FrameError, FrameReader, Tagger};
use crate::key::{Direction, TransferKey};
use crate::manifest::Manifest;

/// Buffers given to the socket in one call.
const SLICES: usize = 16;

/// One side's stream of frames: what is to be written waits in order, what arrives is read in place.
#[derive(Debug)]
pub(crate) struct Wire<S> {
    stream: S,
    reader: FrameReader,
    tagger: Tagger,
    unwritten: VecDeque<Bytes>,
    /// A write failed: the peer is gone, and nothing more is written.
    broken: bool,
}

/// What one [`Wire::turn`] brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Wrote,
    Read,
    /// The peer will send no more.
    Ended,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    /// `outgoing` is the direction of what this side writes.
    pub(crate) fn new(stream: S, outgoing: Direction) -> Wire<S> {
        let incoming = match outgoing {
            Direction::ToReceiver => Direction::ToSender,
            Direction::ToSender => Direction::ToReceiver,
        };
        Wire {
            stream,
            reader: FrameReader::new(incoming),
            tagger: Tagger::new(outgoing),
            unwritten: VecDeque::new(),
            broken: false,
        }
    }

    pub(crate) fn trust(&mut self, key: &TransferKey, manifest: Manifest) {
        self.reader.trust(key.clone(), manifest);
        self.tagger.trust(key.clone());
    }

    pub(crate) fn push(&mut self, frame: Frame) {
        self.unwritten.push_back(self.tagger.head(&frame));
        if let Frame::Segment { payload, .. } = frame
            && !payload.is_empty()
        {
            self.unwritten.push_back(payload);
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

    /// Writes and reads what the stream will take and give now. Cancel safe: progress is kept here.
    pub(crate) async fn turn(&mut self, reading: bool) -> io::Result<Turn> {
        poll_fn(|cx| {
            let wrote = self.poll_write(cx)?.is_ready();
            if reading {
                let mut space = self.reader.space();
                match poll_read_buf(Pin::new(&mut self.stream), cx, &mut space)? {
                    Poll::Ready(0) => return Poll::Ready(Ok(Turn::Ended)),
                    Poll::Ready(_) => return Poll::Ready(Ok(Turn::Read)),
                    Poll::Pending => {}
                }
            }
            if wrote { Poll::Ready(Ok(Turn::Wrote)) } else { Poll::Pending }
        })
        .await
    }

    /// Ready when something was written; pending also when there is nothing to write.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.unwritten.is_empty() || self.broken {
            return Poll::Pending;
        }
        let mut slices = [IoSlice::new(&[]); SLICES];
        for (slice, bytes) in slices.iter_mut().zip(&self.unwritten) {
            *slice = IoSlice::new(bytes);
        }
        let count = self.unwritten.len().min(SLICES);
        let fault = match Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..count]) {
            Poll::Ready(Ok(written)) if written > 0 => {
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
                first.advance(written);
                return;
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
            while !self.unwritten.is_empty() {
                poll_fn(|cx| self.poll_write(cx)).await?;
            }
            poll_fn(|cx| Pin::new(&mut self.stream).poll_shutdown(cx)).await?;
            let mut rest = [0; 4096];
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
