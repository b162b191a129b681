use std::collections::BTreeMap;

use super::RecvAction;
use crate::frame::Frame;
use crate::manifest::{ClaimError, Coverage, Manifest};
use crate::pace::MOST_UNACKED;
use crate::reason::Reason;
use crate::segment::{Segment, SegmentId};
use crate::ticket::{LinkId, Receipt};

/// Segments between the wires and the sink.
#[derive(Debug)]
pub(super) struct Intake {
    coverage: Coverage,
    /// Every segment that has come so far, by sequence.
    seen: BTreeMap<u32, Seen>,
    /// Not yet acknowledged, by the link they came on.
    outstanding: BTreeMap<LinkId, u64>,
    /// At the sink or on their way to it.
    at_sink: usize,
    at_sink_bytes: u64,
    /// The sink has them.
    taken: Receipt,
    /// What the sender says is all.
    whole: Option<Receipt>,
}

#[derive(Debug)]
struct Seen {
    id: SegmentId,
    /// Of the copy that was passed on.
    digest: Option<u128>,
    bytes: u64,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    AskedAgain(LinkId),
    AtSink(LinkId),
    Taken,
}

/// A segment as it came.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) link: LinkId,
    /// What the link may have unacknowledged.
    pub(super) window: u64,
    pub(super) sequence: u32,
    /// If it is the one that came with it.
    pub(super) digest: Option<u128>,
    pub(super) segment: Segment,
}

impl Intake {
    pub(super) fn new(manifest: Manifest) -> Intake {
        Intake {
            coverage: Coverage::new(manifest),
            seen: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            at_sink: 0,
            at_sink_bytes: 0,
            taken: Receipt { segments: 0, bytes: 0 },
            whole: None,
        }
    }

    /// So much is all; nothing beyond it is taken in.
    pub(super) fn close(&mut self, whole: Receipt) -> Result<(), Reason> {
        let beyond = self.seen.last_key_value().is_some_and(|(&last, _)| last >= whole.segments);
        if beyond || self.whole.is_some_and(|earlier| earlier != whole) {
            return Err(protocol("commit of other segments"));
        }
        self.whole = Some(whole);
        Ok(())
    }

    /// What is to be committed, once the sink has all of it.
    pub(super) fn complete(&self) -> Result<Option<Receipt>, Reason> {
        match self.whole {
            Some(whole) if self.taken.segments == whole.segments => {
                if self.taken != whole {
                    return Err(protocol("commit of other segments"));
                }
                match self.coverage.first_missing() {
                    Some(missing) => Err(Reason::Incomplete { missing: missing.to_string() }),
                    None => Ok(Some(whole)),
                }
            }
            Some(_) | None => Ok(None),
        }
    }

    pub(super) fn at_sink(&self) -> usize {
        self.at_sink
    }

    /// Bytes at the sink or on their way to it.
    pub(super) fn held(&self) -> u64 {
        self.at_sink_bytes
    }

    /// Bytes at the sink that came on links which are gone.
    pub(super) fn stranded(&self, up: impl Fn(LinkId) -> bool) -> u64 {
        self.outstanding.iter().filter(|(link, _)| !up(**link)).map(|(_, bytes)| bytes).sum()
    }

    /// The link is gone, and with it what it was asked for again.
    pub(super) fn lost(&mut self, link: LinkId) {
        let outstanding = self.outstanding.entry(link).or_default();
        self.seen.retain(|_, seen| {
            let on_it = seen.place == Place::AskedAgain(link);
            *outstanding -= if on_it { seen.bytes } else { 0 };
            !on_it
        });
    }

    /// Takes a segment in: passes it on when `verified`, else asks for it once more.
    pub(super) fn segment(&mut self, arrived: Arrived, out: &mut Vec<RecvAction>) -> Result<(), Reason> {
        let Arrived { link, window, sequence, digest, segment } = arrived;
        let verified = digest.is_some();
        let first_time = match self.seen.get_mut(&sequence) {
            None => true,
            Some(seen) if seen.id != segment.id || differ(seen.digest, digest) => {
                return Err(protocol("another segment under an old number"));
            }
            Some(seen) => match seen.place {
                Place::AskedAgain(asked) if asked == link => false,
                Place::AskedAgain(_) => return Err(protocol("segment sent twice")),
                Place::AtSink(earlier) if earlier != link => {
                    // its first link broke before the acknowledgement; the sender counts it as this one's now
                    seen.place = Place::AtSink(link);
                    *self.outstanding.entry(earlier).or_default() -= seen.bytes;
                    *self.outstanding.entry(link).or_default() += seen.bytes;
                    out.push(RecvAction::Fault("duplicate_segment"));
                    return Ok(());
                }
                Place::AtSink(_) => return Err(protocol("segment sent twice")),
                Place::Taken => {
                    out.push(RecvAction::Fault("duplicate_segment"));
                    out.push(RecvAction::Write(link, Frame::Ack { sequence }));
                    return Ok(());
                }
            },
        };
        if first_time {
            self.admit(link, window, sequence, &segment)?;
        }
        match (verified, first_time) {
            (true, _) => self.pass_on(link, sequence, digest, segment, out),
            (false, true) => {
                out.push(RecvAction::Fault("corrupt_segment"));
                out.push(RecvAction::Write(link, Frame::Again { sequence }));
                Ok(())
            }
            (false, false) => Err(Reason::Corrupt { segment: segment.id.to_string() }),
        }
    }

    /// Books a new segment's credit.
    fn admit(&mut self, link: LinkId, window: u64, sequence: u32, segment: &Segment) -> Result<(), Reason> {
        let bytes = segment.payload.len() as u64;
        let far = u64::from(sequence) >= u64::from(self.taken.segments) + MOST_UNACKED as u64;
        if far || self.whole.is_some_and(|whole| sequence >= whole.segments) {
            return Err(protocol("segment out of sequence"));
        }
        let outstanding = self.outstanding.entry(link).or_default();
        if bytes > window.saturating_sub(*outstanding) {
            return Err(protocol("segment beyond the credit"));
        }
        *outstanding += bytes;
        let place = Place::AskedAgain(link);
        self.seen.insert(sequence, Seen { id: segment.id, digest: None, bytes, place });
        Ok(())
    }

    fn pass_on(
        &mut self,
        link: LinkId,
        sequence: u32,
        digest: Option<u128>,
        segment: Segment,
        out: &mut Vec<RecvAction>,
    ) -> Result<(), Reason> {
        self.coverage.claim(&segment.id).map_err(|fault| match fault {
            ClaimError::Twice => protocol("segment sent twice"),
            ClaimError::Scattered => protocol("segments scattered beyond bounds"),
        })?;
        if let Some(seen) = self.seen.get_mut(&sequence) {
            (seen.place, seen.digest) = (Place::AtSink(link), digest);
            self.at_sink += 1;
            self.at_sink_bytes += seen.bytes;
        }
        out.push(RecvAction::Accept { sequence, segment });
        Ok(())
    }

    /// The sink has it. Gives out the link to acknowledge it on, and its bytes.
    pub(super) fn taken(&mut self, sequence: u32) -> Option<(LinkId, u64)> {
        let seen = self.seen.get_mut(&sequence)?;
        let Place::AtSink(link) = seen.place else { return None };
        seen.place = Place::Taken;
        self.taken.segments += 1;
        self.taken.bytes += seen.bytes;
        self.at_sink -= 1;
        self.at_sink_bytes -= seen.bytes;
        *self.outstanding.entry(link).or_default() -= seen.bytes;
        Some((link, seen.bytes))
    }
}

/// Of two copies that were both right.
fn differ(one: Option<u128>, other: Option<u128>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

fn protocol(fault: &str) -> Reason {
    Reason::Protocol { fault: fault.to_owned() }
}
