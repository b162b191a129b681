use std::time::Instant;

use crate::error::Error;
use crate::frame::{F32_DENSE, Frame, Hello};
use crate::key;
use crate::manifest::Manifest;
use crate::pace::Pace;
use crate::reason::Reason;
use crate::segment::Segment;
use crate::ticket::{Expected, Incarnation, LinkId, Receipt};

pub(crate) mod driver;
mod intake;
mod links;
pub(crate) mod listener;

use intake::{Arrived, Intake};
use links::Links;

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
    if hello.format != F32_DENSE {
        return Err(Reason::Mismatch { field: "number_format".to_owned() });
    }
    if hello.state_pos != expected.state_pos {
        return Err(Reason::Mismatch { field: "state_pos".to_owned() });
    }
    Ok(Manifest::new(expected.layout, expected.state_pos))
}

/// The receiving half of one transfer after its first greeting, without socket, clock or await. It was chosen to be a
/// machine because links, arriving segments, the sink's progress, redone segments and time interleave on the same few
/// values.
///
/// `Queued -> Receiving -> Committing -> Over`, and from each to `Over`. Nothing but `Committing` can end well, and it is
/// entered only when every part is there, verified, and taken by the sink.
#[derive(Debug)]
pub(crate) struct RecvSession {
    manifest: Manifest,
    incarnation: Incarnation,
    pace: Pace,
    links: Links,
    /// What one link may have unacknowledged, and all together.
    window: u64,
    room: u64,
    /// When the sink last finished or was given something to do.
    sink_moved: Instant,
    intake: Intake,
    state: State,
    /// How the newest lost link ended.
    fault: Option<Error>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waiting for staging room.
    Queued,
    Receiving,
    /// The sink decides. A peer that leaves now changes nothing.
    Committing(Receipt),
    Over,
}

#[derive(Debug)]
pub(crate) enum RecvEvent {
    /// There is staging room for the session's unacknowledged bytes.
    Admitted,
    /// A link whose greeting was accepted, and that [`RecvSession::may_join`]. It `borrows` the sender's memory.
    Joined {
        link: LinkId,
        borrows: bool,
    },
    /// One that may not: its connection is closed.
    Refused,
    Frame(LinkId, Frame),
    /// Bytes arrived that are no whole frame yet.
    Heard(LinkId),
    /// Bytes arrived that are no frame of this link.
    Garbled(LinkId),
    /// The connection ended.
    Lost(LinkId, Option<std::io::Error>),
    /// The sink took this segment.
    Accepted {
        sequence: u32,
    },
    SinkFailed(Reason),
    /// The sink committed.
    Committed,
    GiveUp(Reason),
    Tick,
}

#[derive(Debug)]
pub(crate) enum RecvAction {
    Write(LinkId, Frame),
    /// Close it; nothing more is heard of it.
    Drop(LinkId),
    /// Verified; give it to the sink.
    Accept {
        sequence: u32,
        segment: Segment,
    },
    /// Everything is there; ask the sink to commit.
    Commit(Receipt),
    /// Something went wrong that may yet be repaired.
    Fault(&'static str),
    Finish(Result<Receipt, Error>),
}

/// What a session may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    pub(crate) links: u16,
    /// Bytes unacknowledged on one link.
    pub(crate) window: u64,
}

impl Allowance {
    /// Bytes unacknowledged on all links together.
    pub(crate) fn room(&self) -> u64 {
        self.window * u64::from(self.links)
    }
}

impl RecvSession {
    pub(crate) fn new(
        manifest: Manifest,
        incarnation: Incarnation,
        pace: Pace,
        allowance: Allowance,
        now: Instant,
    ) -> RecvSession {
        RecvSession {
            manifest,
            incarnation,
            pace,
            // a replacement may come before the news of what it replaces; credit is bounded apart
            links: Links::new(allowance.links.saturating_mul(2), now),
            window: allowance.window,
            room: allowance.room(),
            sink_moved: now,
            intake: Intake::new(manifest),
            state: State::Queued,
            fault: None,
        }
    }

    /// Bytes its links may have unacknowledged together.
    pub(crate) fn room(&self) -> u64 {
        self.room
    }

    /// Whether a link of this number may join: none did before, and there are not too many.
    pub(crate) fn may_join(&self, link: LinkId) -> bool {
        self.links.may_join(link)
    }

    /// Whether the sender may still change anything.
    pub(crate) fn open(&self) -> bool {
        match self.state {
            State::Queued | State::Receiving => true,
            State::Committing(_) | State::Over => false,
        }
    }

    /// Payload bytes that arrived and that the sink has not taken.
    pub(crate) fn staged(&self) -> u64 {
        if self.open() { self.intake.held() } else { 0 }
    }

    fn sink_busy(&self) -> bool {
        match self.state {
            State::Queued | State::Receiving => self.intake.at_sink() > 0,
            State::Committing(_) => true,
            State::Over => false,
        }
    }

    /// When to send the next [`RecvEvent::Tick`].
    pub(crate) fn deadline(&self, now: Instant) -> Instant {
        let links = self.links.deadline(&self.pace).unwrap_or(now + self.pace.stall);
        let links = if self.open() { links } else { links.max(now + self.pace.heartbeat / 4) };
        if self.sink_busy() { links.min(self.sink_moved + self.pace.sink) } else { links }
    }

    pub(crate) fn on(&mut self, event: RecvEvent, now: Instant, out: &mut Vec<RecvAction>) {
        if self.state == State::Over {
            return;
        }
        let before = out.len();
        let sink_was_busy = self.sink_busy();
        match event {
            RecvEvent::Admitted => {
                if self.state == State::Queued {
                    self.state = State::Receiving;
                }
            }
            RecvEvent::Joined { link, borrows } => {
                self.links.join(link, now);
                let incarnation = self.incarnation;
                out.push(RecvAction::Write(link, Frame::Welcome { incarnation, borrows }));
            }
            RecvEvent::Refused => out.push(RecvAction::Fault("link_refused")),
            RecvEvent::Frame(link, frame) => {
                self.links.heard(link, now);
                self.frame(link, frame, out);
            }
            RecvEvent::Heard(link) => self.links.heard(link, now),
            RecvEvent::Garbled(link) => self.drop_link(link, "garbled_frame", Error::Cut(None), now, out),
            RecvEvent::Lost(link, fault) => {
                out.push(RecvAction::Fault("link_lost"));
                self.lost(link, Error::Cut(fault), now);
            }
            RecvEvent::Accepted { sequence } => {
                self.sink_moved = now;
                self.accepted(sequence, out);
            }
            RecvEvent::SinkFailed(reason) => self.give_up(reason, out),
            RecvEvent::Committed => self.committed(out),
            RecvEvent::GiveUp(reason) => {
                if self.open() {
                    self.give_up(reason, out);
                }
            }
            RecvEvent::Tick => self.tick(now, out),
        }
        if self.state != State::Over {
            // before there is credit to send it again
            self.links.adopt(out);
        }
        self.grant(out);
        if !sink_was_busy {
            self.sink_moved = now;
        }
        for action in &out[before..] {
            if let RecvAction::Write(link, _) = action {
                self.links.said(*link, now);
            }
        }
    }

    /// Credit for links that have none yet, within the session's room.
    fn grant(&mut self, out: &mut Vec<RecvAction>) {
        if self.state == State::Receiving {
            let taken = self.links.granted() + self.intake.stranded(|link| self.links.has(link));
            self.links.grant(self.window, self.room.saturating_sub(taken), out);
        }
    }

    fn frame(&mut self, link: LinkId, frame: Frame, out: &mut Vec<RecvAction>) {
        let name = frame.name();
        match frame {
            Frame::Heartbeat => {}
            // what the sender says after the commit is on its way does not undo it
            Frame::Abort(_) if !self.open() => {}
            Frame::Abort(reason) => {
                out.push(RecvAction::Write(link, Frame::Abort(reason.clone())));
                self.finish(Err(Error::PeerGaveUp(reason)), out);
            }
            Frame::Segment { sequence, id, digest, payload } if self.state == State::Receiving => {
                let (window, segment) = (self.links.window(link), Segment { id, payload });
                let arrived = Arrived { link, window, sequence, digest, segment };
                if let Err(reason) = self.intake.segment(arrived, out) {
                    self.give_up(reason, out);
                }
            }
            // a copy that was on its way on another link
            Frame::Segment { .. } if !self.open() => {}
            Frame::Commit { state_pos, incarnation, sent } => self.close(state_pos, incarnation, sent, out),
            Frame::Hello(_)
            | Frame::Segment { .. }
            | Frame::Welcome { .. }
            | Frame::Credit { .. }
            | Frame::Ack { .. }
            | Frame::Again { .. }
            | Frame::Keep
            | Frame::Committed(_) => self.give_up(Reason::Protocol { fault: name.to_owned() }, out),
        }
    }

    fn close(&mut self, state_pos: u32, incarnation: Incarnation, sent: Receipt, out: &mut Vec<RecvAction>) {
        if !self.open() {
            return;
        }
        let closed = if incarnation != self.incarnation {
            Err(Reason::StaleIncarnation)
        } else if state_pos != self.manifest.state_pos() {
            Err(Reason::Mismatch { field: "state_pos".to_owned() })
        } else {
            self.intake.close(sent)
        };
        match closed {
            Ok(()) => self.commit_when_whole(out),
            Err(reason) => self.give_up(reason, out),
        }
    }

    fn accepted(&mut self, sequence: u32, out: &mut Vec<RecvAction>) {
        if self.open()
            && let Some((link, bytes)) = self.intake.taken(sequence)
        {
            self.links.ack(link, sequence, bytes, out);
            self.commit_when_whole(out);
        }
    }

    fn commit_when_whole(&mut self, out: &mut Vec<RecvAction>) {
        match self.intake.complete() {
            Ok(Some(receipt)) => {
                self.state = State::Committing(receipt);
                out.push(RecvAction::Commit(receipt));
            }
            Ok(None) => {}
            Err(reason) => self.give_up(reason, out),
        }
    }

    fn committed(&mut self, out: &mut Vec<RecvAction>) {
        if let State::Committing(receipt) = self.state {
            out.extend(self.links.ids().map(|link| RecvAction::Write(link, Frame::Committed(receipt))));
            self.finish(Ok(receipt), out);
        }
    }

    fn drop_link(
        &mut self,
        link: LinkId,
        kind: &'static str,
        fault: Error,
        now: Instant,
        out: &mut Vec<RecvAction>,
    ) {
        out.push(RecvAction::Fault(kind));
        out.push(RecvAction::Drop(link));
        self.lost(link, fault, now);
    }

    /// The sender brings a new link, and what this one left open comes on that.
    fn lost(&mut self, link: LinkId, fault: Error, now: Instant) {
        self.links.lose(link, now);
        self.intake.lost(link);
        self.fault = Some(fault);
    }

    fn tick(&mut self, now: Instant, out: &mut Vec<RecvAction>) {
        if self.sink_busy() && now >= self.sink_moved + self.pace.sink {
            return self.give_up(Reason::Sink { fault: "no progress".to_owned() }, out);
        }
        for link in self.links.tick(&self.pace, now, out) {
            let fault = Error::GaveUp(Reason::Stalled);
            self.drop_link(link, "link_stalled", fault, now, out);
        }
        if self.open() && self.links.deserted(&self.pace, now) {
            let fault = self.fault.take().unwrap_or(Error::Cut(None));
            self.finish(Err(fault), out);
        }
    }

    fn give_up(&mut self, reason: Reason, out: &mut Vec<RecvAction>) {
        let told = |link| RecvAction::Write(link, Frame::Abort(reason.clone()));
        out.extend(self.links.ids().map(told));
        self.finish(Err(Error::GaveUp(reason)), out);
    }

    fn finish(&mut self, end: Result<Receipt, Error>, out: &mut Vec<RecvAction>) {
        self.state = State::Over;
        out.push(RecvAction::Finish(end));
    }
}
