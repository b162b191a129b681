use std::collections::BTreeMap;
use std::time::Instant;

use crate::error::Error;
use crate::frame::Frame;
use crate::key::TransferKey;
use crate::manifest::Manifest;
use crate::pace::{MOST_UNACKED, Pace};
use crate::reason::Reason;
use crate::segment::Segment;
use crate::ticket::{Incarnation, Receipt};

pub(crate) mod driver;

/// The sending half of one transfer, without socket, clock or await. It was chosen to be a machine, and not a straight
/// line, because acknowledgements, credit, the source and time interleave on the same few values.
///
/// `Greeting -> Streaming -> Closing -> Over`, and from each to `Over`.
#[derive(Debug)]
pub(crate) struct SendSession {
    manifest: Manifest,
    incarnation: Incarnation,
    key: TransferKey,
    pace: Pace,
    heard: Instant,
    said: Instant,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The greeting is out; the receiver looks the ticket up and may wait for staging room.
    Greeting,
    Streaming(Flow),
    /// Everything is out; waiting for acknowledgements and the commit.
    Closing(Flow),
    Over,
}

#[derive(Debug)]
struct Flow {
    window: u64,
    /// By sequence; kept until the receiver's sink has them, in case it asks again.
    unacked: BTreeMap<u32, Unacked>,
    unacked_bytes: u64,
    /// Taken from the source, waiting for credit.
    waiting: Option<Segment>,
    sent: Receipt,
}

#[derive(Debug)]
struct Unacked {
    segment: Segment,
    again: bool,
}

#[derive(Debug)]
pub(crate) enum SendEvent {
    Frame(Frame),
    /// Bytes arrived that are no whole frame yet.
    Heard,
    Segment(Segment),
    SourceEnded,
    /// The connection ended.
    Closed(Option<std::io::Error>),
    GiveUp(Reason),
    Tick,
}

#[derive(Debug)]
pub(crate) enum SendAction {
    Write(Frame),
    Finish(Result<Receipt, Error>),
}

impl SendSession {
    pub(crate) fn new(
        manifest: Manifest,
        incarnation: Incarnation,
        key: TransferKey,
        pace: Pace,
        now: Instant,
    ) -> SendSession {
        SendSession { manifest, incarnation, key, pace, heard: now, said: now, state: State::Greeting }
    }

    /// Whether the source should be asked for its next segment.
    pub(crate) fn wants_segment(&self) -> bool {
        match &self.state {
            State::Streaming(flow) => flow.waiting.is_none(),
            State::Greeting | State::Closing(_) | State::Over => false,
        }
    }

    /// Whether the receiver may have committed without our knowing.
    pub(crate) fn in_doubt(&self) -> bool {
        match &self.state {
            // acknowledgements may be lost together with the answer
            State::Closing(_) => true,
            State::Greeting | State::Streaming(_) | State::Over => false,
        }
    }

    /// Payload bytes held here for the receiver.
    pub(crate) fn staged(&self) -> u64 {
        match &self.state {
            State::Streaming(flow) | State::Closing(flow) => {
                flow.unacked_bytes + flow.waiting.as_ref().map_or(0, |segment| segment.payload.len() as u64)
            }
            State::Greeting | State::Over => 0,
        }
    }

    /// When to send the next [`SendEvent::Tick`].
    pub(crate) fn deadline(&self) -> Instant {
        (self.heard + self.pace.stall).min(self.said + self.pace.heartbeat)
    }

    pub(crate) fn on(&mut self, event: SendEvent, now: Instant, out: &mut Vec<SendAction>) {
        if matches!(self.state, State::Over) {
            return;
        }
        let before = out.len();
        match event {
            SendEvent::Frame(frame) => {
                self.heard = now;
                self.frame(frame, out);
            }
            SendEvent::Heard => self.heard = now,
            SendEvent::Segment(segment) => self.segment(segment, out),
            SendEvent::SourceEnded => self.source_ended(out),
            SendEvent::Closed(fault) => self.finish(Err(Error::Cut(fault)), out),
            SendEvent::GiveUp(reason) => self.give_up(reason, out),
            SendEvent::Tick => self.tick(now, out),
        }
        if out.len() > before {
            self.said = now;
        }
    }

    fn frame(&mut self, frame: Frame, out: &mut Vec<SendAction>) {
        let name = frame.name();
        match (frame, &mut self.state) {
            (Frame::Heartbeat, _) => {}
            (Frame::Abort(reason), _) => self.finish(Err(Error::PeerGaveUp(reason)), out),
            (Frame::Welcome { window }, State::Greeting) => {
                if window < self.manifest.largest_segment() {
                    return self.protocol("window smaller than a segment", out);
                }
                self.state = State::Streaming(Flow::new(window));
            }
            // an earlier transfer of this ticket was committed and its answer lost
            (Frame::Committed(receipt), State::Greeting) => self.finish(Ok(receipt), out),
            (Frame::Ack { sequence }, State::Streaming(flow) | State::Closing(flow)) => {
                match flow.unacked.remove(&sequence) {
                    Some(acked) => flow.unacked_bytes -= acked.segment.payload.len() as u64,
                    None => return self.protocol("acknowledgement of nothing", out),
                }
                flow.push(&self.key, out);
            }
            (Frame::Again { sequence }, State::Streaming(flow) | State::Closing(flow)) => {
                match flow.unacked.get_mut(&sequence) {
                    Some(unacked) if !unacked.again => {
                        unacked.again = true;
                        out.push(SendAction::Write(frame_of(&self.key, sequence, &unacked.segment)));
                    }
                    Some(_) | None => self.protocol("asked again for a segment not on its way", out),
                }
            }
            (Frame::Committed(receipt), State::Closing(flow))
                if flow.unacked.is_empty() && flow.sent == receipt =>
            {
                self.finish(Ok(receipt), out);
            }
            (
                Frame::Hello(_)
                | Frame::Segment { .. }
                | Frame::Commit { .. }
                | Frame::Welcome { .. }
                | Frame::Ack { .. }
                | Frame::Again { .. }
                | Frame::Committed(_),
                _,
            ) => self.protocol(name, out),
        }
    }

    fn segment(&mut self, segment: Segment, out: &mut Vec<SendAction>) {
        if let Err(fault) = self.manifest.check(&segment.id, segment.payload.len() as u64) {
            return self.give_up(Reason::Source { fault: fault.to_string() }, out);
        }
        match &mut self.state {
            State::Streaming(flow) if flow.waiting.is_none() => {
                flow.waiting = Some(segment);
                flow.push(&self.key, out);
            }
            State::Streaming(_) | State::Greeting | State::Closing(_) | State::Over => {
                self.give_up(Reason::Source { fault: "segment nobody asked for".to_owned() }, out);
            }
        }
    }

    fn source_ended(&mut self, out: &mut Vec<SendAction>) {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Streaming(flow) => {
                let sent = flow.sent;
                self.state = State::Closing(flow);
                out.push(SendAction::Write(Frame::Commit {
                    state_pos: self.manifest.state_pos(),
                    incarnation: self.incarnation,
                    sent,
                }));
            }
            state @ (State::Greeting | State::Closing(_) | State::Over) => self.state = state,
        }
    }

    fn tick(&mut self, now: Instant, out: &mut Vec<SendAction>) {
        if now >= self.heard + self.pace.stall {
            self.give_up(Reason::Stalled, out);
        } else if now >= self.said + self.pace.heartbeat {
            out.push(SendAction::Write(Frame::Heartbeat));
        }
    }

    fn protocol(&mut self, fault: &str, out: &mut Vec<SendAction>) {
        self.give_up(Reason::Protocol { fault: fault.to_owned() }, out);
    }

    fn give_up(&mut self, reason: Reason, out: &mut Vec<SendAction>) {
        out.push(SendAction::Write(Frame::Abort(reason.clone())));
        self.finish(Err(Error::GaveUp(reason)), out);
    }

    fn finish(&mut self, end: Result<Receipt, Error>, out: &mut Vec<SendAction>) {
        self.state = State::Over;
        out.push(SendAction::Finish(end));
    }
}

impl Flow {
    fn new(window: u64) -> Flow {
        let sent = Receipt { segments: 0, bytes: 0 };
        Flow { window, unacked: BTreeMap::new(), unacked_bytes: 0, waiting: None, sent }
    }

    /// Sends the waiting segment once there is credit for it.
    fn push(&mut self, key: &TransferKey, out: &mut Vec<SendAction>) {
        if self.unacked.len() >= MOST_UNACKED {
            return;
        }
        let free = self.window - self.unacked_bytes;
        if let Some(segment) = self.waiting.take_if(|segment| segment.payload.len() as u64 <= free) {
            let sequence = self.sent.segments;
            self.sent.segments += 1;
            self.sent.bytes += segment.payload.len() as u64;
            self.unacked_bytes += segment.payload.len() as u64;
            out.push(SendAction::Write(frame_of(key, sequence, &segment)));
            self.unacked.insert(sequence, Unacked { segment, again: false });
        }
    }
}

fn frame_of(key: &TransferKey, sequence: u32, segment: &Segment) -> Frame {
    let digest = key.digest(&segment.id, &segment.payload);
    Frame::Segment { sequence, id: segment.id, digest, payload: segment.payload.clone() }
}
