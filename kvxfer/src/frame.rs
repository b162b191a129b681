use bytes::{BufMut, Bytes, BytesMut};

use crate::key::{Digest, Direction, TransferKey};
use crate::layout::Layout;
use crate::local::{self, Lent};
use crate::reason::{MOST_TEXT, Reason};
use crate::segment::{Projection, SegmentId};
use crate::ticket::{Incarnation, LinkId, Receipt, TicketId};

mod parse;
mod reader;

pub(crate) use parse::FrameError;
pub(crate) use reader::FrameReader;

/// First bytes of a greeting: protocol and its version.
pub(crate) const MAGIC: [u8; 8] = *b"TNDMKV\x00\x04";
/// Longest head: what a frame has beside a segment's payload.
pub(crate) const MOST_HEAD: usize = 256;
/// Bytes of the length field and of the tag around a frame's body.
pub(crate) const LENGTH: usize = 4;
pub(crate) const TAG: usize = 8;
/// Bytes of the digest after a payload.
pub(crate) const DIGEST: usize = 16;
/// Kind and four numbers, whatever the kind.
pub(crate) const SEGMENT_ID: usize = 13;

/// Numbers are f32, little-endian, without gaps between rows.
pub(crate) const F32_DENSE: u32 = 1;

/// What a sender opens with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) ticket: TicketId,
    /// Of the receiver that issued the ticket.
    pub(crate) incarnation: Incarnation,
    /// Of this attempt to send.
    pub(crate) sender: Incarnation,
    pub(crate) link: LinkId,
    /// Links that the sender keeps up at a time.
    pub(crate) links: u16,
    pub(crate) state_pos: u32,
    pub(crate) layout: Layout,
    /// Of the numbers in every payload.
    pub(crate) format: u32,
    /// Payloads may be read from the sender's memory.
    pub(crate) lent: Option<Lent>,
    /// HMAC-SHA256 of all of the above, keyed with the ticket's secret.
    pub(crate) proof: [u8; 32],
}

/// Everything that crosses the wire. Each frame is
///
/// ```text
/// length u32 | kind u8 | fields | tag u64 [| payload | digest u128]
/// ```
///
/// little-endian; `length` counts kind to tag, never the payload, whose length is a segment frame's field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// To the receiver.
    Hello(Hello),
    /// To the receiver. `sequence` numbers segments from 0; a segment sent again keeps its number. The digest follows the
    /// payload and is taken as the bytes pass: `digest` is there when the frame was read and it was right.
    Segment { sequence: u32, id: SegmentId, digest: Option<u128>, payload: Bytes },
    /// To the receiver: that was all.
    Commit { state_pos: u32, incarnation: Incarnation, sent: Receipt },
    /// To the sender: the greeting is accepted, by this start of the receiver's process.
    /// It `borrows`: it can read the sender's memory, by this greeting or an earlier one on this connection.
    Welcome { incarnation: Incarnation, borrows: bool },
    /// To the sender: so many bytes of payload may be unacknowledged on this link.
    Credit { window: u64 },
    /// To the sender: the sink took this segment; its bytes are credit again.
    Ack { sequence: u32 },
    /// To the sender: the digest did not match, send it again.
    Again { sequence: u32 },
    /// To the sender: the state is in use from here on.
    Committed(Receipt),
    /// To the receiver, after the answer to the commit: this transfer says no more, and the next one's greeting follows.
    Keep,
    /// Either way: alive, with nothing to say.
    Heartbeat,
    /// Either way: over, and why.
    Abort(Reason),
}

pub(crate) mod kind {
    pub(crate) const HELLO: u8 = 1;
    pub(crate) const SEGMENT: u8 = 2;
    pub(crate) const COMMIT: u8 = 3;
    pub(crate) const WELCOME: u8 = 4;
    pub(crate) const ACK: u8 = 5;
    pub(crate) const AGAIN: u8 = 6;
    pub(crate) const COMMITTED: u8 = 7;
    pub(crate) const HEARTBEAT: u8 = 8;
    pub(crate) const ABORT: u8 = 9;
    pub(crate) const CREDIT: u8 = 10;
    pub(crate) const KEEP: u8 = 11;
    pub(crate) const LENT: u8 = 12;
}

impl Hello {
    /// What the proof is over.
    pub(crate) fn unproven(&self) -> BytesMut {
        let mut out = BytesMut::with_capacity(MOST_HEAD);
        out.put_slice(&MAGIC);
        out.put_slice(&self.ticket.0);
        out.put_slice(&self.incarnation.0);
        out.put_slice(&self.sender.0);
        out.put_u16_le(self.link.0);
        out.put_u16_le(self.links);
        out.put_u32_le(self.state_pos);
        for (_, field) in self.layout.fields() {
            out.put_u32_le(field);
        }
        out.put_u32_le(self.format);
        let Lent { process, mark } = self.lent.unwrap_or(Lent { process: 0, mark: 0 });
        out.put_u32_le(process);
        out.put_u64_le(mark);
        out
    }
}

impl SegmentId {
    pub(crate) fn encoded(&self) -> [u8; SEGMENT_ID] {
        let (kind, numbers) = match *self {
            SegmentId::Latents { layer, first_token, tokens } => (0, [layer, first_token, tokens]),
            SegmentId::Recurrent { layer, first_head, heads } => (1, [layer, first_head, heads]),
            SegmentId::Tail { layer, which, first_head, heads } => {
                let part = match which {
                    Projection::Query => 2,
                    Projection::Key => 7,
                    Projection::Value => 8,
                };
                (part, [layer, first_head, heads])
            }
            SegmentId::Sampling => (3, [0, 0, 0]),
            SegmentId::IndexKeys { layer, first_pool, pools } => (4, [layer, first_pool, pools]),
            SegmentId::IndexTail { layer } => (5, [layer, 0, 0]),
            SegmentId::Hidden => (6, [0, 0, 0]),
        };
        let mut out = [kind; SEGMENT_ID];
        for (place, number) in out[1..].chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        out
    }
}

impl Frame {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Frame::Hello(_) => "hello",
            Frame::Segment { .. } => "segment",
            Frame::Commit { .. } => "commit",
            Frame::Welcome { .. } => "welcome",
            Frame::Credit { .. } => "credit",
            Frame::Ack { .. } => "ack",
            Frame::Again { .. } => "again",
            Frame::Committed(_) => "committed",
            Frame::Keep => "keep",
            Frame::Heartbeat => "heartbeat",
            Frame::Abort(_) => "abort",
        }
    }

    fn put_body(&self, out: &mut BytesMut) {
        match self {
            Frame::Hello(hello) => {
                out.put_u8(kind::HELLO);
                out.put_slice(&hello.unproven());
                out.put_slice(&hello.proof);
            }
            Frame::Segment { sequence, id, payload, .. } => {
                out.put_u8(kind::SEGMENT);
                out.put_u32_le(*sequence);
                out.put_slice(&id.encoded());
                out.put_u64_le(payload.len() as u64);
            }
            Frame::Commit { state_pos, incarnation, sent } => {
                out.put_u8(kind::COMMIT);
                out.put_u32_le(*state_pos);
                out.put_slice(&incarnation.0);
                put_receipt(out, sent);
            }
            Frame::Welcome { incarnation, borrows } => {
                out.put_u8(kind::WELCOME);
                out.put_slice(&incarnation.0);
                out.put_u8((*borrows).into());
            }
            Frame::Credit { window } => {
                out.put_u8(kind::CREDIT);
                out.put_u64_le(*window);
            }
            Frame::Ack { sequence } => {
                out.put_u8(kind::ACK);
                out.put_u32_le(*sequence);
            }
            Frame::Again { sequence } => {
                out.put_u8(kind::AGAIN);
                out.put_u32_le(*sequence);
            }
            Frame::Committed(receipt) => {
                out.put_u8(kind::COMMITTED);
                put_receipt(out, receipt);
            }
            Frame::Keep => out.put_u8(kind::KEEP),
            Frame::Heartbeat => out.put_u8(kind::HEARTBEAT),
            Frame::Abort(reason) => {
                let (code, text) = reason.parts();
                let text = &text[..text.floor_char_boundary(MOST_TEXT)];
                out.put_u8(kind::ABORT);
                out.put_u8(code);
                out.put_u8(text.len() as u8);
                out.put_slice(text.as_bytes());
            }
        }
    }
}

fn put_receipt(out: &mut BytesMut, receipt: &Receipt) {
    out.put_u32_le(receipt.segments);
    out.put_u64_le(receipt.bytes);
}

/// Numbers and tags the frames of one direction; the same on both ends of it.
#[derive(Debug)]
pub(crate) struct Tagger {
    key: TransferKey,
    link: LinkId,
    direction: Direction,
    next: u64,
}

impl Tagger {
    pub(crate) fn new(direction: Direction) -> Tagger {
        Tagger { key: TransferKey::unkeyed(), link: LinkId(0), direction, next: 0 }
    }

    /// Of the next transfer on the same connection.
    pub(crate) fn renew(&mut self) {
        *self = Tagger::new(self.direction);
    }

    /// Frame 0 of either direction comes before the two ends know that they share a key, so it has none.
    pub(crate) fn trust(&mut self, key: TransferKey, link: LinkId) {
        self.key = key;
        self.link = link;
    }

    /// The number and the tag of the direction's next frame, whose head this is.
    fn next(&mut self, head: &[u8]) -> (u64, u64) {
        let number = self.next;
        self.next += 1;
        let tag = match number {
            0 => TransferKey::unkeyed().tag(LinkId(0), self.direction, number, head),
            _ => self.key.tag(self.link, self.direction, number, head),
        };
        (number, tag)
    }

    /// The digest of a payload to be written.
    pub(crate) fn digest(&self) -> Digest {
        self.key.digest()
    }

    /// Writes the frame's head; a segment's payload follows it on the wire.
    pub(crate) fn head(&mut self, frame: &Frame) -> Bytes {
        let mut body = BytesMut::with_capacity(MOST_HEAD);
        frame.put_body(&mut body);
        self.around(&body)
    }

    /// Writes the frame of a segment whose payload lies in lent memory.
    pub(crate) fn lent(&mut self, sequence: u32, id: &SegmentId, payload: &[u8], digest: u128) -> Bytes {
        let mut body = BytesMut::with_capacity(MOST_HEAD);
        body.put_u8(kind::LENT);
        body.put_u32_le(sequence);
        body.put_slice(&id.encoded());
        body.put_u64_le(payload.len() as u64);
        body.put_u64_le(local::address(payload));
        body.put_u128_le(digest);
        self.around(&body)
    }

    /// Length and tag around a frame's body.
    pub(crate) fn around(&mut self, body: &[u8]) -> Bytes {
        let mut out = BytesMut::with_capacity(LENGTH + body.len() + TAG);
        out.put_u32_le((body.len() + TAG) as u32);
        out.put_slice(body);
        let (_, tag) = self.next(&out);
        out.put_u64_le(tag);
        out.freeze()
    }
}
