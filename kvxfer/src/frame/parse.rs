use bytes::Buf;

use super::{Frame, Hello, MAGIC, SEGMENT_ID, kind};
use crate::layout::{FIELDS, Layout};
use crate::local::Lent;
use crate::manifest::NotInManifest;
use crate::reason::{MOST_TEXT, Reason};
use crate::segment::{Projection, SegmentId};
use crate::ticket::{Incarnation, LinkId, Receipt, TicketId};

/// Bytes that are no frame, or not the next one. Whose fault: the peer's, or the wire's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("head of {0} bytes")]
    Head(u32),
    #[error("not this protocol and version")]
    Magic,
    #[error("unknown {field} {value}")]
    Unknown { field: &'static str, value: u32 },
    #[error("{0} cut short")]
    Short(&'static str),
    #[error("{0} followed by stray bytes")]
    Long(&'static str),
    #[error("text is not utf-8")]
    Text,
    #[error("tag of frame {0} does not match")]
    Tag(u64),
    #[error(transparent)]
    Segment(#[from] NotInManifest),
    #[error("segment before the greeting")]
    Early,
    #[error("segment in memory that is not lent")]
    Nowhere,
}

impl FrameError {
    /// Whether these are no frame at all: bytes were lost, doubled, moved or changed on this link, and another link may
    /// do better. Anything else was written like that.
    pub(crate) fn is_of_the_link(&self) -> bool {
        match self {
            FrameError::Head(_) | FrameError::Tag(_) => true,
            FrameError::Magic
            | FrameError::Unknown { .. }
            | FrameError::Short(_)
            | FrameError::Long(_)
            | FrameError::Text
            | FrameError::Segment(_)
            | FrameError::Nowhere
            | FrameError::Early => false,
        }
    }
}

/// A frame's head, read.
#[derive(Debug)]
pub(crate) enum Parsed {
    Whole(Frame),
    /// Its payload, of this length, follows.
    Segment {
        sequence: u32,
        id: SegmentId,
        length: u64,
    },
    InMemory(InMemory),
}

/// A segment whose payload lies in lent memory.
#[derive(Debug)]
pub(super) struct InMemory {
    pub(super) sequence: u32,
    pub(super) id: SegmentId,
    pub(super) length: u64,
    pub(super) at: u64,
    pub(super) digest: u128,
}

/// Reads kind and fields. The body is at most a head long, so nothing here allocates more than that.
pub(super) fn body(mut from: &[u8]) -> Result<Parsed, FrameError> {
    let from = &mut from;
    let kind = from.try_get_u8().map_err(|_| FrameError::Short("kind"))?;
    let (name, parsed) = match kind {
        kind::HELLO => ("hello", Parsed::Whole(Frame::Hello(hello(from)?))),
        kind::SEGMENT => ("segment", segment(from)?),
        kind::COMMIT => ("commit", Parsed::Whole(commit(from)?)),
        kind::LENT => ("segment", in_memory(from)?),
        kind::WELCOME => {
            let incarnation = Incarnation(array(from, "welcome")?);
            ("welcome", Parsed::Whole(Frame::Welcome { incarnation, borrows: flag(from, "welcome")? }))
        }
        kind::CREDIT => ("credit", Parsed::Whole(Frame::Credit { window: long(from, "credit")? })),
        kind::ACK => ("ack", Parsed::Whole(Frame::Ack { sequence: word(from, "ack")? })),
        kind::AGAIN => ("again", Parsed::Whole(Frame::Again { sequence: word(from, "again")? })),
        kind::COMMITTED => ("committed", Parsed::Whole(Frame::Committed(receipt(from)?))),
        kind::KEEP => ("keep", Parsed::Whole(Frame::Keep)),
        kind::HEARTBEAT => ("heartbeat", Parsed::Whole(Frame::Heartbeat)),
        kind::ABORT => ("abort", Parsed::Whole(Frame::Abort(reason(from)?))),
        _ => {
            return Err(FrameError::Unknown { field: "frame kind", value: kind.into() });
        }
    };
    if from.has_remaining() { Err(FrameError::Long(name)) } else { Ok(parsed) }
}

fn word(from: &mut &[u8], name: &'static str) -> Result<u32, FrameError> {
    from.try_get_u32_le().map_err(|_| FrameError::Short(name))
}

fn flag(from: &mut &[u8], name: &'static str) -> Result<bool, FrameError> {
    match from.try_get_u8().map_err(|_| FrameError::Short(name))? {
        0 => Ok(false),
        1 => Ok(true),
        value => Err(FrameError::Unknown { field: "flag", value: value.into() }),
    }
}

fn half(from: &mut &[u8], name: &'static str) -> Result<u16, FrameError> {
    from.try_get_u16_le().map_err(|_| FrameError::Short(name))
}

fn long(from: &mut &[u8], name: &'static str) -> Result<u64, FrameError> {
    from.try_get_u64_le().map_err(|_| FrameError::Short(name))
}

fn array<const N: usize>(from: &mut &[u8], name: &'static str) -> Result<[u8; N], FrameError> {
    let mut out = [0; N];
    from.try_copy_to_slice(&mut out).map_err(|_| FrameError::Short(name))?;
    Ok(out)
}

fn hello(from: &mut &[u8]) -> Result<Hello, FrameError> {
    if array(from, "hello")? != MAGIC {
        return Err(FrameError::Magic);
    }
    let ticket = TicketId(array(from, "hello")?);
    let incarnation = Incarnation(array(from, "hello")?);
    let sender = Incarnation(array(from, "hello")?);
    let link = LinkId(half(from, "hello")?);
    let links = half(from, "hello")?;
    let state_pos = word(from, "hello")?;
    let mut fields = [0; FIELDS];
    for field in &mut fields {
        *field = word(from, "hello")?;
    }
    let layout = Layout::from_fields(fields);
    let format = word(from, "hello")?;
    let lent = Lent { process: word(from, "hello")?, mark: long(from, "hello")? };
    let lent = Some(lent).filter(|lent| lent.process != 0);
    let proof = array(from, "hello")?;
    Ok(Hello { ticket, incarnation, sender, link, links, state_pos, layout, format, lent, proof })
}

fn segment(from: &mut &[u8]) -> Result<Parsed, FrameError> {
    let sequence = word(from, "segment")?;
    let id = segment_id(from)?;
    let length = long(from, "segment")?;
    Ok(Parsed::Segment { sequence, id, length })
}

fn in_memory(from: &mut &[u8]) -> Result<Parsed, FrameError> {
    let sequence = word(from, "segment")?;
    let id = segment_id(from)?;
    let length = long(from, "segment")?;
    let at = long(from, "segment")?;
    let digest = from.try_get_u128_le().map_err(|_| FrameError::Short("segment"))?;
    Ok(Parsed::InMemory(InMemory { sequence, id, length, at, digest }))
}

fn segment_id(from: &mut &[u8]) -> Result<SegmentId, FrameError> {
    let encoded: [u8; SEGMENT_ID] = array(from, "segment id")?;
    let mut numbers = &encoded[1..];
    let first = word(&mut numbers, "segment id")?;
    let second = word(&mut numbers, "segment id")?;
    let third = word(&mut numbers, "segment id")?;
    let tail = |which| SegmentId::Tail { layer: first, which, first_head: second, heads: third };
    let id = match encoded[0] {
        0 => SegmentId::Latents { layer: first, first_token: second, tokens: third },
        1 => SegmentId::Recurrent { layer: first, first_head: second, heads: third },
        2 => tail(Projection::Query),
        3 => SegmentId::Sampling,
        4 => SegmentId::IndexKeys { layer: first, first_pool: second, pools: third },
        5 => SegmentId::IndexTail { layer: first },
        6 => SegmentId::Hidden,
        7 => tail(Projection::Key),
        8 => tail(Projection::Value),
        part => {
            return Err(FrameError::Unknown { field: "part", value: part.into() });
        }
    };
    // one segment has one encoding: numbers a kind does not use are zero
    if id.encoded() == encoded { Ok(id) } else { Err(FrameError::Long("segment id")) }
}

fn commit(from: &mut &[u8]) -> Result<Frame, FrameError> {
    let state_pos = word(from, "commit")?;
    let incarnation = Incarnation(array(from, "commit")?);
    Ok(Frame::Commit { state_pos, incarnation, sent: receipt(from)? })
}

fn receipt(from: &mut &[u8]) -> Result<Receipt, FrameError> {
    Ok(Receipt { segments: word(from, "receipt")?, bytes: long(from, "receipt")? })
}

fn reason(from: &mut &[u8]) -> Result<Reason, FrameError> {
    let [code, length] = array(from, "abort")?;
    if usize::from(length) > MOST_TEXT {
        return Err(FrameError::Long("abort"));
    }
    let (text, rest) = from.split_at_checked(length.into()).ok_or(FrameError::Short("abort"))?;
    *from = rest;
    let text = std::str::from_utf8(text).map_err(|_| FrameError::Text)?;
    let unknown = || FrameError::Unknown { field: "reason", value: code.into() };
    Reason::from_parts(code, text).ok_or_else(unknown)
}
