use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use bytes::BufMut;

use crate::frame::{Frame, FrameError, FrameReader, Tagger, kind};
use crate::key::{Direction, TransferKey};
use crate::landing::Landing;
use crate::local::{Borrowed, Offer};
use crate::manifest::Manifest;
use crate::ticket::LinkId;

/// One direction's bytes.
pub(super) struct Way {
    tagger: Tagger,
    reader: FrameReader,
    pub(super) packets: VecDeque<Vec<u8>>,
    /// Payloads by sequence, if they stay in memory.
    lent: Option<BTreeMap<u32, Memory>>,
}

/// A payload in the sender's memory.
pub(in crate::tests) type Memory = Arc<Mutex<Vec<u8>>>;

impl Way {
    pub(super) fn new(direction: Direction, key: &TransferKey, link: LinkId, manifest: Manifest) -> Way {
        let (mut tagger, mut reader) = (Tagger::new(direction), FrameReader::new(direction, Landing::new(0)));
        tagger.trust(key.clone(), link);
        reader.trust(key.clone(), link, manifest);
        Way { tagger, reader, packets: VecDeque::new(), lent: None }
    }

    /// As the two ends of a link on one host do.
    pub(super) fn borrow(&mut self) {
        let offer = Offer::new([7; 16]);
        let [here, other] = [[7; 16], [8; 16]].map(|mark| Borrowed::find(&offer.lent(), &mark));
        assert!(other.is_none(), "that mark is not there");
        self.reader.borrow(here.unwrap());
        self.lent = Some(BTreeMap::new());
    }

    /// The payload of this packet, if it stays in memory.
    pub(super) fn memory(&self, packet: &[u8]) -> Option<Memory> {
        let sequence = u32::from_le_bytes(*packet.get(5..9)?.first_chunk()?);
        self.lent.as_ref()?.get(&sequence).filter(|_| packet[4] == kind::LENT).cloned()
    }

    pub(super) fn write(&mut self, frame: &Frame) {
        let Frame::Segment { sequence, id, payload, .. } = frame else {
            return self.packets.push_back(self.tagger.head(frame).to_vec());
        };
        let mut digest = self.tagger.digest();
        digest.up_to(payload);
        let digest = digest.of(id);
        if let Some(lent) = &mut self.lent {
            // a copy, for tests to change
            let memory = payload.to_vec();
            self.packets.push_back(self.tagger.lent(*sequence, id, &memory, digest).to_vec());
            lent.insert(*sequence, Arc::new(Mutex::new(memory)));
            return;
        }
        let head = self.tagger.head(frame);
        self.packets.push_back([&head[..], payload, &digest.to_le_bytes()].concat());
    }

    /// Reads one packet in two pieces, as a network may bring it.
    pub(super) fn read(&mut self, packet: &[u8]) -> Result<Vec<Frame>, FrameError> {
        let mut frames = Vec::new();
        let (first, second) = packet.split_at(packet.len() / 3);
        for mut piece in [first, second] {
            while !piece.is_empty() {
                let mut space = self.reader.space();
                let taken = space.remaining_mut().min(piece.len());
                space.put_slice(&piece[..taken]);
                piece = &piece[taken..];
                while let Some(frame) = self.reader.next()? {
                    frames.push(frame);
                }
            }
        }
        Ok(frames)
    }
}
