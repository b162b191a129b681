use std::time::Instant;

use crate::error::Error;
use crate::frame::Frame;
use crate::manifest::Manifest;
use crate::pace::Pace;
use crate::reason::Reason;
use crate::segment::Segment;
use crate::ticket::{Incarnation, LinkId, Receipt};
use crate::verdict::Verdict;

pub(crate) mod driver;
mod flow;
mod kept;
mod links;

use flow::Flow;
use links::Links;

/// The sending half of one transfer, without socket, clock or await. It was chosen to be a machine, and not a straight
/// line, because several links, acknowledgements, credit, the source and time interleave on the same few values.
///
/// `Streaming -> Closing -> Over`, and from each to `Over`. Until `Closing` nobody was asked to commit, so a transfer that
/// ends there ends revoked; from then on only the receiver knows.
#[derive(Debug)]
pub(crate) struct SendSession {
    manifest: Manifest,
    incarnation: Incarnation,
    pace: Pace,
    links: Links,
    flow: Flow,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Streaming,
    /// Everything is out; waiting for acknowledgements and the verdict.
    Closing,
    /// This side wants it no more, but had asked for the commit.
    Withdrawing(Reason),
    Over,
}

#[derive(Debug)]
pub(crate) enum SendEvent {
    /// The link is connected and its greeting under way. It may be `kept` from an earlier transfer.
    Dialled {
        link: LinkId,
        kept: bool,
    },
    Frame(LinkId, Frame),
    /// Bytes arrived that are no whole frame yet.
    Heard(LinkId),
    /// The link has nothing left to write.
    Written(LinkId),
    /// The link could not be connected, or ended.
    Lost(LinkId, Error),
    /// Bytes arrived that are no frame of this link.
    Garbled(LinkId),
    Segment(Segment),
    SourceEnded,
    GiveUp(Reason),
    Tick,
}

#[derive(Debug)]
pub(crate) enum SendAction {
    Dial(LinkId),
    Write(LinkId, Frame),
    /// Close it; nothing more is heard of it.
    Drop(LinkId),
    /// A connection kept from an earlier transfer is dead; others from then will be.
    Stale,
    /// Something went wrong that may yet be repaired.
    Fault(&'static str),
    Finish(Verdict),
}

impl SendSession {
    /// `links` connections are kept up at a time.
    pub(crate) fn new(
        manifest: Manifest,
        incarnation: Incarnation,
        pace: Pace,
        links: u16,
        now: Instant,
    ) -> SendSession {
        let links = Links::new(links, now);
        let flow = Flow::new();
        SendSession { manifest, incarnation, pace, links, flow, state: State::Streaming }
    }

    /// Whether the source should be asked for its next segment: when some link would write it at once.
    pub(crate) fn wants_segment(&self) -> bool {
        self.state == State::Streaming && self.flow.wants_segment() && self.links.any_idle()
    }

    /// Payload bytes held here for the receiver.
    pub(crate) fn staged(&self) -> u64 {
        if self.state == State::Over { 0 } else { self.flow.staged() }
    }

    /// When to send the next [`SendEvent::Tick`].
    pub(crate) fn deadline(&self, now: Instant) -> Instant {
        self.links.deadline(&self.pace).unwrap_or(now + self.pace.stall)
    }

    pub(crate) fn on(&mut self, event: SendEvent, now: Instant, out: &mut Vec<SendAction>) {
        if self.state == State::Over {
            return;
        }
        let before = out.len();
        match event {
            SendEvent::Dialled { link, kept } => self.links.dialled(link, kept, now),
            SendEvent::Frame(link, frame) => {
                self.heard(link, now);
                self.frame(link, frame, out);
            }
            SendEvent::Heard(link) => self.heard(link, now),
            SendEvent::Written(link) => self.links.written(link),
            SendEvent::Lost(link, fault) => self.lost(link, fault, 1, "link_lost", now, out),
            SendEvent::Garbled(link) => {
                out.push(SendAction::Drop(link));
                self.lost(link, Error::Cut(None), 1, "garbled_frame", now, out);
            }
            SendEvent::Segment(segment) => self.segment(segment, out),
            SendEvent::SourceEnded => {
                if self.state == State::Streaming {
                    self.state = State::Closing;
                }
            }
            SendEvent::GiveUp(reason) => self.give_up(reason, out),
            SendEvent::Tick => {
                for link in self.links.tick(&self.pace, now, out) {
                    out.push(SendAction::Drop(link));
                    self.lost(link, Error::GaveUp(Reason::Stalled), 2, "link_stalled", now, out);
                }
            }
        }
        self.go_on(now, out);
        for action in &out[before..] {
            if let SendAction::Write(link, _) = action
                && let Some(link) = self.links.get(*link)
            {
                link.said = now;
            }
        }
    }

    fn heard(&mut self, link: LinkId, now: Instant) {
        if let Some(link) = self.links.get(link) {
            link.heard = now;
        }
    }

    /// Whatever the event was: what can be dialled, sent and asked for now.
    fn go_on(&mut self, now: Instant, out: &mut Vec<SendAction>) {
        if self.state == State::Over {
            return;
        }
        self.links.dial(now, out);
        if let State::Withdrawing(reason) = &self.state {
            if let Some(link) = self.links.ask() {
                out.push(SendAction::Write(link, Frame::Abort(reason.clone())));
            }
            return;
        }
        self.flow.push(&mut self.links, out);
        if self.state == State::Closing
            && self.flow.all_sent()
            && let Some(link) = self.links.ask()
        {
            let (state_pos, incarnation, sent) =
                (self.manifest.state_pos(), self.incarnation, self.flow.sent);
            out.push(SendAction::Write(link, Frame::Commit { state_pos, incarnation, sent }));
        }
    }

    fn frame(&mut self, link: LinkId, frame: Frame, out: &mut Vec<SendAction>) {
        let name = frame.name();
        match frame {
            Frame::Heartbeat => {}
            Frame::Abort(reason) => self.peer_gave_up(reason, out),
            Frame::Welcome { incarnation, .. } if incarnation != self.incarnation => {
                self.give_up(Reason::StaleIncarnation, out);
            }
            Frame::Welcome { .. } => {
                if let Some(link) = self.links.get(link) {
                    link.welcomed = true;
                }
            }
            Frame::Credit { window } if window < self.manifest.largest_segment() => {
                self.protocol("window smaller than a segment", out);
            }
            Frame::Credit { window } => self.links.grant(link, window),
            Frame::Ack { sequence } => match self.flow.ack(sequence) {
                Ok(credit) => {
                    if let Some((link, bytes)) = credit {
                        self.links.acked(link, bytes);
                    }
                    self.links.progressed();
                }
                Err(fault) => self.protocol(fault, out),
            },
            Frame::Again { sequence } => {
                out.push(SendAction::Fault("corrupt_segment"));
                if !self.flow.again(link, sequence, out) {
                    self.protocol("asked again for a segment not on its way", out);
                }
            }
            Frame::Committed(receipt) => self.committed(receipt, out),
            Frame::Hello(_) | Frame::Segment { .. } | Frame::Commit { .. } | Frame::Keep => {
                self.protocol(name, out);
            }
        }
    }

    fn committed(&mut self, receipt: Receipt, out: &mut Vec<SendAction>) {
        // before anything is sent, it is an earlier attempt's answer
        let ours = self.state != State::Streaming && receipt == self.flow.sent;
        if ours || self.flow.sent.segments == 0 {
            self.finish(Verdict::Held(receipt), out);
        } else {
            self.protocol("commit of other segments", out);
        }
    }

    fn peer_gave_up(&mut self, reason: Reason, out: &mut Vec<SendAction>) {
        let in_doubt = self.state != State::Streaming && reason == Reason::UnknownTicket;
        let error = match &self.state {
            State::Withdrawing(ours) if !in_doubt => Error::GaveUp(ours.clone()),
            State::Withdrawing(_) | State::Streaming | State::Closing | State::Over => {
                Error::PeerGaveUp(reason)
            }
        };
        // a receiver that has forgotten the ticket may have committed it before
        let verdict = if in_doubt { Verdict::Unknown(error) } else { Verdict::Revoked(error) };
        self.finish(verdict, out);
    }

    fn segment(&mut self, segment: Segment, out: &mut Vec<SendAction>) {
        let checked = self.manifest.check(&segment.id, segment.payload.len() as u64);
        let fault = match checked.map_err(|fault| fault.to_string()) {
            Ok(()) => self.flow.give(segment).map_err(ToOwned::to_owned),
            Err(fault) => Err(fault),
        };
        if let Err(fault) = fault {
            self.give_up(Reason::Source { fault }, out);
        }
    }

    /// Replaces the link; what it carried goes out on others.
    fn lost(
        &mut self,
        link: LinkId,
        fault: Error,
        weight: u32,
        kind: &'static str,
        now: Instant,
        out: &mut Vec<SendAction>,
    ) {
        let stale = self.links.is_stale(link);
        let weight = if stale { 0 } else { weight };
        out.push(if stale { SendAction::Stale } else { SendAction::Fault(kind) });
        self.flow.strand(link);
        let too_many = self.links.lose(link, weight, now);
        if too_many {
            let verdict = match self.state {
                State::Streaming => Verdict::Revoked(fault),
                State::Closing | State::Withdrawing(_) | State::Over => Verdict::Unknown(fault),
            };
            self.finish(verdict, out);
        }
    }

    fn protocol(&mut self, fault: &str, out: &mut Vec<SendAction>) {
        self.give_up(Reason::Protocol { fault: fault.to_owned() }, out);
    }

    /// Tells the receiver. Once it was asked to commit, only its answer says what became of that.
    fn give_up(&mut self, reason: Reason, out: &mut Vec<SendAction>) {
        for link in self.links.ids() {
            out.push(SendAction::Write(link, Frame::Abort(reason.clone())));
        }
        match &self.state {
            State::Streaming => self.finish(Verdict::Revoked(Error::GaveUp(reason)), out),
            State::Closing | State::Withdrawing(_) if reason.is_of_the_peer() => {
                self.finish(Verdict::Unknown(Error::GaveUp(reason)), out);
            }
            State::Closing => self.state = State::Withdrawing(reason),
            State::Withdrawing(_) | State::Over => {}
        }
    }

    fn finish(&mut self, verdict: Verdict, out: &mut Vec<SendAction>) {
        self.state = State::Over;
        out.push(SendAction::Finish(verdict));
    }
}
