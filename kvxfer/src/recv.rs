use std::time::Instant;

use crate::error::Error;
use crate::frame::{Frame, Hello};
use crate::key::{self, TransferKey};
use crate::manifest::Manifest;
use crate::pace::Pace;
use crate::reason::Reason;
use crate::segment::{Segment, SegmentId};
use crate::ticket::{Expected, Incarnation, Receipt};

pub(crate) mod driver;
mod intake;
pub(crate) mod listener;

use intake::Intake;

/// Holds a greeting against what the ticket's owner expects. The secret comes first: who does not know it learns nothing.
pub(crate) fn check_hello(hello: &Hello, expected: &Expected) -> Result<Manifest, Reason> {
    if !key::proven(&expected.secret, hello) {
        return Err(Reason::UnknownTicket);
    }
    if hello.incarnation != expected.incarnation {
        return Err(Reason::StaleIncarnation);
    }
    if let Some(difference) = expected.layout.first_difference(&hello.layout) {
        return Err(Reason::Mismatch { field: difference.field.to_owned() });
    }
    if hello.state_pos != expected.state_pos {
        return Err(Reason::Mismatch { field: "state_pos".to_owned() });
    }
    Ok(Manifest::new(expected.layout, expected.state_pos))
}

/// The receiving half of one transfer after its greeting, without socket, clock or await. It was chosen to be a machine
/// because arriving segments, the sink's progress, redone segments and time interleave on the same few values.
///
/// `Queued -> Receiving -> Closing -> Committing -> Over`, and from each to `Over`. Nothing but `Committing` can end
/// well, and it is entered only when every part is there, verified, and taken by the sink.
#[derive(Debug)]
pub(crate) struct RecvSession {
    manifest: Manifest,
    incarnation: Incarnation,
    key: TransferKey,
    pace: Pace,
    heard: Instant,
    said: Instant,
    /// When the sink last finished or was given something to do.
    sink_moved: Instant,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Waiting for staging room.
    Queued,
    Receiving(Intake),
    /// The sender has sent everything; some of it is still on its way to the sink, or asked for again.
    Closing(Intake),
    /// The sink decides. A peer that leaves now changes nothing.
    Committing(Receipt),
    Over,
}

#[derive(Debug)]
pub(crate) enum RecvEvent {
    /// There is staging room for this many unacknowledged bytes.
    Admitted {
        window: u64,
    },
    Frame(Frame),
    /// Bytes arrived that are no whole frame yet.
    Heard,
    /// The sink took this segment.
    Accepted {
        sequence: u32,
    },
    SinkFailed(Reason),
    /// The sink committed.
    Committed,
    /// The connection ended.
    Closed(Option<std::io::Error>),
    GiveUp(Reason),
    Tick,
}

#[derive(Debug)]
pub(crate) enum RecvAction {
    Write(Frame),
    /// Verified; give it to the sink.
    Accept {
        sequence: u32,
        segment: Segment,
    },
    /// Everything is there; ask the sink to commit.
    Commit(Receipt),
    /// A digest was wrong; the segment was asked for again.
    Corrupt(SegmentId),
    Finish(Result<Receipt, Error>),
}

impl RecvSession {
    pub(crate) fn new(
        manifest: Manifest,
        incarnation: Incarnation,
        key: TransferKey,
        pace: Pace,
        now: Instant,
    ) -> RecvSession {
        let state = State::Queued;
        RecvSession { manifest, incarnation, key, pace, heard: now, said: now, sink_moved: now, state }
    }

    /// Whether frames are still of interest.
    pub(crate) fn reads(&self) -> bool {
        match self.state {
            State::Queued | State::Receiving(_) | State::Closing(_) => true,
            State::Committing(_) | State::Over => false,
        }
    }

    /// Payload bytes that arrived and that the sink has not taken.
    pub(crate) fn staged(&self) -> u64 {
        match &self.state {
            State::Receiving(intake) | State::Closing(intake) => intake.held(),
            State::Queued | State::Committing(_) | State::Over => 0,
        }
    }

    fn sink_busy(&self) -> bool {
        match &self.state {
            State::Receiving(intake) | State::Closing(intake) => intake.at_sink() > 0,
            State::Committing(_) => true,
            State::Queued | State::Over => false,
        }
    }

    /// When to send the next [`RecvEvent::Tick`].
    pub(crate) fn deadline(&self) -> Instant {
        let mut deadline = self.said + self.pace.heartbeat;
        if self.reads() {
            deadline = deadline.min(self.heard + self.pace.stall);
        }
        if self.sink_busy() {
            deadline = deadline.min(self.sink_moved + self.pace.sink);
        }
        deadline
    }

    pub(crate) fn on(&mut self, event: RecvEvent, now: Instant, out: &mut Vec<RecvAction>) {
        if matches!(self.state, State::Over) {
            return;
        }
        let before = out.len();
        let sink_was_busy = self.sink_busy();
        match event {
            RecvEvent::Admitted { window } => {
                if let State::Queued = self.state {
                    self.state = State::Receiving(Intake::new(self.manifest, window));
                    out.push(RecvAction::Write(Frame::Welcome { window }));
                }
            }
            RecvEvent::Frame(frame) => {
                self.heard = now;
                if self.reads() {
                    self.frame(frame, out);
                }
            }
            RecvEvent::Heard => self.heard = now,
            RecvEvent::Accepted { sequence } => {
                self.sink_moved = now;
                self.accepted(sequence, out);
            }
            RecvEvent::SinkFailed(reason) => self.give_up(reason, out),
            RecvEvent::Committed => self.committed(out),
            RecvEvent::Closed(fault) => {
                if self.reads() {
                    self.finish(Err(Error::Cut(fault)), out);
                }
            }
            RecvEvent::GiveUp(reason) => {
                if self.reads() {
                    self.give_up(reason, out);
                }
            }
            RecvEvent::Tick => self.tick(now, out),
        }
        if !sink_was_busy {
            self.sink_moved = now;
        }
        if out[before..].iter().any(|action| matches!(action, RecvAction::Write(_))) {
            self.said = now;
        }
    }

    fn frame(&mut self, frame: Frame, out: &mut Vec<RecvAction>) {
        let name = frame.name();
        match (frame, &mut self.state) {
            (Frame::Heartbeat, _) => {}
            (Frame::Abort(reason), _) => self.finish(Err(Error::PeerGaveUp(reason)), out),
            (
                Frame::Segment { sequence, id, digest, payload },
                State::Receiving(intake) | State::Closing(intake),
            ) => {
                let verified = self.key.digest(&id, &payload) == digest;
                if let Err(reason) = intake.segment(sequence, Segment { id, payload }, verified, out) {
                    self.give_up(reason, out);
                }
            }
            (Frame::Commit { state_pos, incarnation, sent }, State::Receiving(intake)) => {
                let received = intake.received();
                match self.check_commit(state_pos, incarnation, sent, received) {
                    Ok(()) => self.close(out),
                    Err(reason) => self.give_up(reason, out),
                }
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
            ) => self.give_up(Reason::Protocol { fault: name.to_owned() }, out),
        }
    }

    fn check_commit(
        &self,
        state_pos: u32,
        incarnation: Incarnation,
        sent: Receipt,
        received: Receipt,
    ) -> Result<(), Reason> {
        if incarnation != self.incarnation {
            return Err(Reason::StaleIncarnation);
        }
        if state_pos != self.manifest.state_pos() {
            let field = "state_pos".to_owned();
            return Err(Reason::Mismatch { field });
        }
        if sent != received {
            let fault = "commit of other segments".to_owned();
            return Err(Reason::Protocol { fault });
        }
        Ok(())
    }

    fn close(&mut self, out: &mut Vec<RecvAction>) {
        if let State::Receiving(mut intake) = std::mem::replace(&mut self.state, State::Over) {
            intake.close();
            self.state = State::Closing(intake);
            self.commit_when_whole(out);
        }
    }

    fn accepted(&mut self, sequence: u32, out: &mut Vec<RecvAction>) {
        if let State::Receiving(intake) | State::Closing(intake) = &mut self.state {
            intake.taken(sequence);
            out.push(RecvAction::Write(Frame::Ack { sequence }));
            self.commit_when_whole(out);
        }
    }

    fn commit_when_whole(&mut self, out: &mut Vec<RecvAction>) {
        let State::Closing(intake) = &self.state else {
            return;
        };
        if intake.outstanding() > 0 {
            return;
        }
        match intake.first_missing() {
            Some(missing) => self.give_up(Reason::Incomplete { missing: missing.to_string() }, out),
            None => {
                let receipt = intake.received();
                self.state = State::Committing(receipt);
                out.push(RecvAction::Commit(receipt));
            }
        }
    }

    fn committed(&mut self, out: &mut Vec<RecvAction>) {
        if let State::Committing(receipt) = self.state {
            out.push(RecvAction::Write(Frame::Committed(receipt)));
            self.finish(Ok(receipt), out);
        }
    }

    fn tick(&mut self, now: Instant, out: &mut Vec<RecvAction>) {
        if self.sink_busy() && now >= self.sink_moved + self.pace.sink {
            self.give_up(Reason::Sink { fault: "no progress".to_owned() }, out);
        } else if self.reads() && now >= self.heard + self.pace.stall {
            self.give_up(Reason::Stalled, out);
        } else if now >= self.said + self.pace.heartbeat {
            out.push(RecvAction::Write(Frame::Heartbeat));
        }
    }

    fn give_up(&mut self, reason: Reason, out: &mut Vec<RecvAction>) {
        out.push(RecvAction::Write(Frame::Abort(reason.clone())));
        self.finish(Err(Error::GaveUp(reason)), out);
    }

    fn finish(&mut self, end: Result<Receipt, Error>, out: &mut Vec<RecvAction>) {
        self.state = State::Over;
        out.push(RecvAction::Finish(end));
    }
}
