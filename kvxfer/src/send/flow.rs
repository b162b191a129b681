use std::collections::{BTreeMap, BTreeSet};

use super::SendAction;
use super::links::Links;
use crate::frame::Frame;
use crate::pace::MOST_UNACKED;
use crate::segment::Segment;
use crate::ticket::{LinkId, Receipt};

/// Segments between the source and the receiver's sink.
#[derive(Debug)]
pub(super) struct Flow {
    /// By sequence; kept until the receiver's sink has them, in case they are lost or it asks again.
    unacked: BTreeMap<u32, Unacked>,
    unacked_bytes: u64,
    /// Of those, whose link is gone; they go out again first.
    stranded: BTreeSet<u32>,
    /// Taken from the source, waiting for credit.
    waiting: Option<Segment>,
    pub(super) sent: Receipt,
}

#[derive(Debug)]
struct Unacked {
    segment: Segment,
    link: LinkId,
    again: bool,
}

impl Flow {
    pub(super) fn new() -> Flow {
        Flow {
            unacked: BTreeMap::new(),
            unacked_bytes: 0,
            stranded: BTreeSet::new(),
            waiting: None,
            sent: Receipt { segments: 0, bytes: 0 },
        }
    }

    pub(super) fn wants_segment(&self) -> bool {
        self.waiting.is_none() && self.stranded.is_empty() && self.unacked.len() < MOST_UNACKED
    }

    pub(super) fn staged(&self) -> u64 {
        self.unacked_bytes + self.waiting.as_ref().map_or(0, |segment| segment.payload.len() as u64)
    }

    /// Nothing is under way, or it did not want more.
    pub(super) fn give(&mut self, segment: Segment) -> Result<(), &'static str> {
        match self.waiting.replace(segment) {
            None => Ok(()),
            Some(_) => Err("segment nobody asked for"),
        }
    }

    /// The receiver's sink has it: gives out the link that its bytes are credit of again. One that was lost with its link and
    /// sent again may be acknowledged twice.
    pub(super) fn ack(&mut self, sequence: u32) -> Result<Option<(LinkId, u64)>, &'static str> {
        if sequence >= self.sent.segments {
            return Err("acknowledgement of nothing");
        }
        let Some(acked) = self.unacked.remove(&sequence) else { return Ok(None) };
        let bytes = acked.segment.payload.len() as u64;
        self.unacked_bytes -= bytes;
        let credit = !self.stranded.remove(&sequence);
        Ok(credit.then_some((acked.link, bytes)))
    }

    /// The digest did not match: once more, on the same link.
    pub(super) fn again(&mut self, link: LinkId, sequence: u32, out: &mut Vec<SendAction>) -> bool {
        match self.unacked.get_mut(&sequence) {
            Some(unacked) if !unacked.again && unacked.link == link => {
                unacked.again = true;
                out.push(SendAction::Write(link, frame_of(sequence, &unacked.segment)));
                true
            }
            Some(_) | None => false,
        }
    }

    /// What was unacknowledged on a link that is gone.
    pub(super) fn strand(&mut self, link: LinkId) {
        let on_it = self.unacked.iter().filter(|(_, unacked)| unacked.link == link);
        self.stranded.extend(on_it.map(|(&sequence, _)| sequence));
    }

    /// Sends what waits, as far as links have credit for it.
    pub(super) fn push(&mut self, links: &mut Links, out: &mut Vec<SendAction>) {
        while let Some(&sequence) = self.stranded.first() {
            let Some(unacked) = self.unacked.get_mut(&sequence) else {
                self.stranded.remove(&sequence);
                continue;
            };
            let Some(link) = links.take(unacked.segment.payload.len() as u64) else {
                return;
            };
            self.stranded.remove(&sequence);
            (unacked.link, unacked.again) = (link, false);
            out.push(SendAction::Write(link, frame_of(sequence, &unacked.segment)));
        }
        let bytes = |segment: &Segment| segment.payload.len() as u64;
        let Some(link) = self.waiting.as_ref().and_then(|segment| links.take(bytes(segment))) else {
            return;
        };
        if let Some(segment) = self.waiting.take() {
            let sequence = self.sent.segments;
            self.sent.segments += 1;
            self.sent.bytes += bytes(&segment);
            self.unacked_bytes += bytes(&segment);
            out.push(SendAction::Write(link, frame_of(sequence, &segment)));
            self.unacked.insert(sequence, Unacked { segment, link, again: false });
        }
    }

    /// Everything that was taken from the source has been sent.
    pub(super) fn all_sent(&self) -> bool {
        self.waiting.is_none()
    }
}

fn frame_of(sequence: u32, segment: &Segment) -> Frame {
    Frame::Segment { sequence, id: segment.id, digest: None, payload: segment.payload.clone() }
}
