//! Bodies of the fuzz targets; a test drives them over a small corpus too.

use bytes::BufMut;

use crate::frame::{FrameReader, LENGTH, MOST_HEAD, Tagger};
use crate::key::{Direction, TransferKey};
use crate::landing::Landing;
use crate::layout::{FIELDS, Layout};
use crate::manifest::Manifest;
use crate::sampling::SamplingState;
use crate::ticket::{Incarnation, LinkId, Secret, TicketId};

const LAYOUT: [u32; FIELDS] = [2, 8, 3, 2, 4, 4, 3, 8, 2, 4, 6, 100, 16];
const STATE_POS: u32 = 40;

fn key() -> TransferKey {
    TransferKey::derive(
        &Secret([7; 32]),
        &TicketId([1; 16]),
        STATE_POS,
        &Incarnation([2; 16]),
        &Incarnation([3; 16]),
    )
}

fn reader() -> FrameReader {
    let mut reader = FrameReader::new(Direction::ToReceiver, Landing::new(0));
    reader.trust(key(), LinkId(0), Manifest::new(Layout::from_fields(LAYOUT), STATE_POS));
    reader
}

/// Any bytes to the reader: frames or an error, never a panic, never more memory than the manifest's largest segment.
/// Returns how many frames came out.
pub fn frames(bytes: &[u8]) -> usize {
    read(&mut reader(), bytes)
}

/// Bytes as the bodies of frames with correct tags: past the tag, where a stranger's bytes would stop.
pub fn tagged_bodies(bytes: &[u8]) -> usize {
    let mut tagger = Tagger::new(Direction::ToReceiver);
    tagger.trust(key(), LinkId(0));
    let mut stream = Vec::new();
    let mut rest = bytes;
    while let Some((&length, after)) = rest.split_first() {
        let (body, after) = after.split_at(after.len().min(length.into()).min(MOST_HEAD - LENGTH));
        stream.put_slice(&tagger.around(body));
        rest = after;
    }
    read(&mut reader(), &stream)
}

/// Any bytes as a sampling segment's payload.
pub fn sampling(bytes: &[u8]) -> bool {
    SamplingState::decode(bytes, &Layout::from_fields(LAYOUT), STATE_POS).is_ok()
}

fn read(reader: &mut FrameReader, mut bytes: &[u8]) -> usize {
    let mut frames = 0;
    while !bytes.is_empty() {
        let mut space = reader.space();
        let taken = space.remaining_mut().min(bytes.len());
        space.put_slice(&bytes[..taken]);
        bytes = &bytes[taken..];
        loop {
            match reader.next() {
                Ok(Some(_)) => frames += 1,
                Ok(None) => break,
                Err(_) => return frames,
            }
        }
    }
    frames
}
