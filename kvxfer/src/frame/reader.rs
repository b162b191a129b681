use bytes::buf::Limit;
use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::parse::{self, FrameError, InMemory, Parsed};
use super::{DIGEST, Frame, LENGTH, MOST_HEAD, TAG, Tagger};
use crate::key::{Digest, Direction, TransferKey};
use crate::landing::Landing;
use crate::local::Borrowed;
use crate::manifest::Manifest;
use crate::segment::SegmentId;
use crate::ticket::LinkId;

/// Read at once while looking for heads. Small, since a payload's bytes caught in it are copied once.
const HEADS_AT_ONCE: usize = 4 << 10;
/// Read beyond a payload's end in the same call: its digest, the next segment's head, and little more.
const BEYOND: usize = 64;

/// Turns a stream's bytes into frames, treating every byte as hostile: a head has a bounded length, a payload only the
/// length that the manifest gives its segment, and nothing is allocated before that is known.
///
/// Bytes go where [`FrameReader::space`] says, so payloads land in their own buffer without a copy; then
/// [`FrameReader::next`] is asked until it has no more.
#[derive(Debug)]
pub(crate) struct FrameReader {
    tagger: Tagger,
    /// Known once the greeting is accepted; no segment passes before.
    manifest: Option<Manifest>,
    heads: BytesMut,
    landing: Landing,
    body: Option<Body>,
    /// The other end's memory.
    borrowed: Option<Borrowed>,
}

/// A segment whose payload is arriving.
#[derive(Debug)]
struct Body {
    sequence: u32,
    id: SegmentId,
    payload: BytesMut,
    digest: Digest,
    length: usize,
}

impl FrameReader {
    pub(crate) fn new(direction: Direction, landing: Landing) -> FrameReader {
        let (tagger, heads) = (Tagger::new(direction), BytesMut::new());
        FrameReader { tagger, manifest: None, heads, landing, body: None, borrowed: None }
    }

    /// From frame 1 on, tags are keyed and segments of this manifest are read.
    pub(crate) fn trust(&mut self, key: TransferKey, link: LinkId, manifest: Manifest) {
        self.tagger.trust(key, link);
        self.manifest = Some(manifest);
    }

    /// Payloads may lie in the other end's memory.
    pub(crate) fn borrow(&mut self, borrowed: Borrowed) {
        self.borrowed = Some(borrowed);
    }

    pub(crate) fn borrows(&self) -> bool {
        self.borrowed.is_some()
    }

    /// From here on the stream is the next transfer's, greeting first. The last frame was a whole one.
    pub(crate) fn renew(&mut self) {
        self.tagger.renew();
        self.manifest = None;
    }

    /// Whether every byte that came was of a frame that was given out.
    pub(crate) fn is_empty(&self) -> bool {
        self.heads.is_empty() && self.body.is_none()
    }

    /// Where the stream's next bytes go; never empty.
    pub(crate) fn space(&mut self) -> Limit<&mut BytesMut> {
        match &mut self.body {
            Some(body) => {
                let left = body.length + BEYOND - body.payload.len();
                (&mut body.payload).limit(left)
            }
            None => {
                self.heads.reserve(HEADS_AT_ONCE);
                let left = HEADS_AT_ONCE.max(2 * MOST_HEAD);
                (&mut self.heads).limit(left)
            }
        }
    }

    /// Payload bytes allocated for a segment that is still arriving.
    pub(crate) fn staged(&self) -> u64 {
        self.body.as_ref().map_or(0, |body| body.length as u64)
    }

    /// The next whole frame, if its bytes are all there.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        if self.body.is_none() {
            match self.head()? {
                Some(Parsed::Whole(frame)) => return Ok(Some(frame)),
                Some(Parsed::Segment { sequence, id, length }) => {
                    self.open(sequence, id, length)?;
                }
                Some(Parsed::InMemory(segment)) => return self.copied(segment).map(Some),
                None => return Ok(None),
            }
        }
        let Some(body) = &mut self.body else { return Ok(None) };
        let there = body.payload.len().min(body.length);
        body.digest.up_to(&body.payload[..there]);
        let whole = self.body.take_if(|body| body.payload.len() >= body.length + DIGEST);
        let Some(Body { sequence, id, mut payload, digest, length }) = whole else { return Ok(None) };
        let mut rest = &payload[length..];
        let digest = Some(digest.of(&id)).filter(|&digest| digest == rest.get_u128_le());
        self.heads.extend_from_slice(rest);
        payload.truncate(length);
        Ok(Some(Frame::Segment { sequence, id, digest, payload: payload.freeze() }))
    }

    fn head(&mut self) -> Result<Option<Parsed>, FrameError> {
        let Some(&length) = self.heads.first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(length);
        let whole = LENGTH + length as usize;
        if length as usize <= TAG || whole > MOST_HEAD {
            return Err(FrameError::Head(length));
        }
        if self.heads.len() < whole {
            return Ok(None);
        }
        let mut head = self.heads.split_to(whole);
        let tag = head.split_off(whole - TAG).get_u64_le();
        let (number, expected) = self.tagger.next(&head);
        if tag != expected {
            return Err(FrameError::Tag(number));
        }
        parse::body(&head[LENGTH..]).map(Some)
    }

    /// Copies a segment out of lent memory, whose owner may write to it at any time, and takes the digest of the copy.
    fn copied(&self, segment: InMemory) -> Result<Frame, FrameError> {
        let InMemory { sequence, id, length, at, digest } = segment;
        self.manifest.as_ref().ok_or(FrameError::Early)?.check(&id, length)?;
        let borrowed = self.borrowed.as_ref().ok_or(FrameError::Nowhere)?;
        let mut payload = self.landing.filled(length as usize);
        // what is not there to be read has a wrong digest, too
        let read = borrowed.read(at, payload.as_mut());
        let mut taken = self.tagger.digest();
        taken.up_to(payload.as_ref());
        let digest = Some(taken.of(&id)).filter(|&taken| read && taken == digest);
        Ok(Frame::Segment { sequence, id, digest, payload: Bytes::from_owner(payload) })
    }

    fn open(&mut self, sequence: u32, id: SegmentId, length: u64) -> Result<(), FrameError> {
        let manifest = self.manifest.as_ref().ok_or(FrameError::Early)?;
        manifest.check(&id, length)?;
        let length = length as usize;
        let mut payload = self.landing.take(length + BEYOND);
        let here = (length + DIGEST).min(self.heads.len());
        payload.extend_from_slice(&self.heads.split_to(here));
        self.body = Some(Body { sequence, id, payload, digest: self.tagger.digest(), length });
        Ok(())
    }
}
