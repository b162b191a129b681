use std::collections::BTreeMap;

use super::RecvAction;
use crate::frame::Frame;
use crate::manifest::{ClaimError, Coverage, Manifest};
use crate::pace::MOST_UNACKED;
use crate::reason::Reason;
use crate::segment::{Segment, SegmentId};
use crate::ticket::Receipt;

/// Segments between the wire and the sink, within the window.
#[derive(Debug)]
pub(super) struct Intake {
    window: u64,
    coverage: Coverage,
    /// Not yet acknowledged, by sequence.
    outstanding: BTreeMap<u32, Outstanding>,
    outstanding_bytes: u64,
    /// Of those, at the sink or on their way to it.
    at_sink: usize,
    at_sink_bytes: u64,
    received: Receipt,
    closed: bool,
}

#[derive(Debug)]
struct Outstanding {
    id: SegmentId,
    bytes: u64,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    AskedAgain,
    AtSink,
}

impl Intake {
    pub(super) fn new(manifest: Manifest, window: u64) -> Intake {
        Intake {
            window,
            coverage: Coverage::new(manifest),
            outstanding: BTreeMap::new(),
            outstanding_bytes: 0,
            at_sink: 0,
            at_sink_bytes: 0,
            received: Receipt { segments: 0, bytes: 0 },
            closed: false,
        }
    }

    /// No new segments from here on.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn received(&self) -> Receipt {
        self.received
    }

    pub(super) fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    pub(super) fn at_sink(&self) -> usize {
        self.at_sink
    }

    /// Bytes at the sink or on their way to it.
    pub(super) fn held(&self) -> u64 {
        self.at_sink_bytes
    }

    pub(super) fn first_missing(&self) -> Option<SegmentId> {
        self.coverage.first_missing()
    }

    /// Takes a segment in: passes it on when `verified`, else asks for it once more.
    pub(super) fn segment(
        &mut self,
        sequence: u32,
        segment: Segment,
        verified: bool,
        out: &mut Vec<RecvAction>,
    ) -> Result<(), Reason> {
        let first_time = self.admit(sequence, &segment)?;
        if !verified && first_time {
            out.push(RecvAction::Corrupt(segment.id));
            out.push(RecvAction::Write(Frame::Again { sequence }));
            return Ok(());
        }
        if !verified {
            return Err(Reason::Corrupt { segment: segment.id.to_string() });
        }
        self.coverage.claim(&segment.id).map_err(|fault| match fault {
            ClaimError::Twice => protocol("segment sent twice"),
            ClaimError::Scattered => protocol("segments scattered beyond bounds"),
        })?;
        if let Some(outstanding) = self.outstanding.get_mut(&sequence) {
            outstanding.place = Place::AtSink;
            self.at_sink += 1;
            self.at_sink_bytes += outstanding.bytes;
        }
        out.push(RecvAction::Accept { sequence, segment });
        Ok(())
    }

    /// Books a segment's credit, or finds it among those asked for again; says whether it is new.
    fn admit(&mut self, sequence: u32, segment: &Segment) -> Result<bool, Reason> {
        let bytes = segment.payload.len() as u64;
        if let Some(earlier) = self.outstanding.get(&sequence) {
            return match earlier.place {
                Place::AskedAgain if earlier.id == segment.id => Ok(false),
                Place::AskedAgain => Err(protocol("another segment under an old number")),
                Place::AtSink => Err(protocol("segment sent twice")),
            };
        }
        if sequence != self.received.segments || self.closed {
            return Err(protocol("segment out of sequence"));
        }
        if bytes > self.window - self.outstanding_bytes || self.outstanding.len() >= MOST_UNACKED {
            return Err(protocol("segment beyond the credit"));
        }
        let next = self.received.segments.checked_add(1).ok_or_else(|| protocol("too many segments"))?;
        self.received = Receipt { segments: next, bytes: self.received.bytes + bytes };
        self.outstanding_bytes += bytes;
        self.outstanding.insert(sequence, Outstanding { id: segment.id, bytes, place: Place::AskedAgain });
        Ok(true)
    }

    /// The sink has it.
    pub(super) fn taken(&mut self, sequence: u32) {
        if let Some(taken) = self.outstanding.remove(&sequence) {
            self.outstanding_bytes -= taken.bytes;
            self.at_sink -= 1;
            self.at_sink_bytes -= taken.bytes;
        }
    }
}

fn protocol(fault: &str) -> Reason {
    Reason::Protocol { fault: fault.to_owned() }
}
