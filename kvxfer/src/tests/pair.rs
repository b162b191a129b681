use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::state::{LAYOUT, STATE_POS, Units, ticket};
use crate::error::Error;
use crate::frame::{DIGEST, F32_DENSE, Frame, Hello, kind};
use crate::key::{Direction, TransferKey};
use crate::manifest::Manifest;
use crate::pace::Pace;
use crate::reason::Reason;
use crate::recv::{Allowance, RecvAction, RecvEvent, RecvSession};
use crate::segment::Segment;
use crate::send::{SendAction, SendEvent, SendSession};
use crate::ticket::{Incarnation, LinkId, Receipt};
use crate::verdict::Verdict;

mod way;

use way::{Memory, Way};

/// Both sessions with links of bytes between them, and a clock that stands still until neither has anything to do.
pub(super) struct Pair {
    sender: SendSession,
    receiver: RecvSession,
    links: BTreeMap<LinkId, Link>,
    key: TransferKey,
    manifest: Manifest,
    now: Instant,
    /// Segments that the sink was given, and not yet said to have taken.
    at_sink: VecDeque<u32>,
    pub(super) sunk: Units,
    /// Times that the sink was asked to commit.
    pub(super) commits: u32,
    pub(super) verdict: Option<Verdict>,
    pub(super) received: Option<Result<Receipt, Error>>,
    pub(super) most_staged: u64,
    /// By kind, as the drivers count them.
    pub(super) faults: BTreeMap<&'static str, u32>,
    /// Greetings of this many links were answered.
    pub(super) greeted: u32,
    /// Payloads stay in the sender's memory.
    lends: bool,
}

/// One connection.
struct Link {
    to_receiver: Way,
    to_sender: Way,
    /// The receiver has read the greeting.
    joined: bool,
    /// Passes nothing any more, and nobody knows.
    silent: bool,
    dead: bool,
}

/// A packet on its way.
pub(super) struct Passing<'a> {
    pub(super) to_receiver: bool,
    /// Counted over all links, one direction apart from the other.
    pub(super) number: usize,
    pub(super) bytes: &'a [u8],
    /// Its payload, when that is not a part of it.
    pub(super) memory: Option<Memory>,
}

/// Bytes of a segment's frame before its payload.
const HEAD: usize = 38;

impl Passing<'_> {
    /// A segment's payload, wherever it lies; empty for another frame.
    pub(super) fn payload(&self) -> Vec<u8> {
        match &self.memory {
            Some(memory) => memory.lock().unwrap().clone(),
            None if self.bytes[4] == kind::SEGMENT => self.bytes[HEAD..self.bytes.len() - DIGEST].to_vec(),
            None => vec![],
        }
    }

    /// Another payload arrives, of the same length.
    pub(super) fn with_payload(&self, payload: &[u8]) -> Fate {
        let mut packet = self.bytes.to_vec();
        match &self.memory {
            Some(memory) => memory.lock().unwrap().copy_from_slice(payload),
            None => packet[HEAD..HEAD + payload.len()].copy_from_slice(payload),
        }
        Fate::Packets(vec![packet])
    }
}

/// What arrives instead.
pub(super) enum Fate {
    Packets(Vec<Vec<u8>>),
    /// The link dies: both ends are told.
    Cut,
    /// The link passes nothing from here on.
    Silence,
}

impl Fate {
    pub(super) fn whole(passing: &Passing) -> Fate {
        Fate::Packets(vec![passing.bytes.to_vec()])
    }
}

pub(super) type Mischief<'a> = &'a mut dyn FnMut(Passing) -> Fate;

impl Pair {
    pub(super) fn new(window: u64, links: u16) -> Pair {
        Pair::between(ticket().incarnation, Incarnation([6; 16]), window, links)
    }

    pub(super) fn between(receiver: Incarnation, sender: Incarnation, window: u64, links: u16) -> Pair {
        let ticket = ticket();
        let manifest = Manifest::new(LAYOUT, STATE_POS);
        let key = TransferKey::derive(&ticket.secret, &ticket.id, STATE_POS, &receiver, &sender);
        let (now, pace) = (Instant::now(), Pace { links, ..Pace::default() });
        let allowance = Allowance { links, window };
        let mut pair = Pair {
            sender: SendSession::new(manifest, receiver, pace, links, now),
            receiver: RecvSession::new(manifest, receiver, pace, allowance, now),
            links: BTreeMap::new(),
            key,
            manifest,
            now,
            at_sink: VecDeque::new(),
            sunk: Units::default(),
            commits: 0,
            verdict: None,
            received: None,
            most_staged: 0,
            faults: BTreeMap::new(),
            greeted: 0,
            lends: false,
        };
        pair.receive(RecvEvent::Admitted);
        pair
    }

    /// The receiver reads payloads from the sender's memory.
    pub(super) fn lending(self) -> Pair {
        Pair { lends: true, ..self }
    }

    pub(super) fn committed(&self) -> bool {
        self.commits > 0
    }

    pub(super) fn staged(&self) -> u64 {
        self.sender.staged() + self.receiver.staged()
    }

    /// Runs until both sides have finished; packets go through `mischief`.
    pub(super) fn run(&mut self, segments: Vec<Segment>, mischief: Mischief) {
        let mut source = segments.into_iter();
        let mut numbers = [0; 2];
        self.send(SendEvent::Tick);
        while self.verdict.is_none() || self.received.is_none() {
            let mut idle = true;
            if self.verdict.is_none() && self.sender.wants_segment() {
                idle = false;
                self.send(source.next().map_or(SendEvent::SourceEnded, SendEvent::Segment));
            }
            for link in self.links.keys().copied().collect::<Vec<_>>() {
                for forth in [true, false] {
                    idle &= !self.pass(link, forth, &mut numbers, mischief);
                }
            }
            if let Some(sequence) = self.at_sink.pop_front() {
                idle = false;
                self.receive(RecvEvent::Accepted { sequence });
            }
            if idle {
                self.tick();
            }
        }
    }

    /// Brings one packet of a link on, if there is one.
    fn pass(&mut self, id: LinkId, forth: bool, numbers: &mut [usize; 2], mischief: Mischief) -> bool {
        let Some(link) = self.links.get_mut(&id).filter(|link| !link.dead) else { return false };
        let way = if forth { &mut link.to_receiver } else { &mut link.to_sender };
        let Some(packet) = way.packets.pop_front() else { return false };
        if forth && way.packets.is_empty() {
            self.send(SendEvent::Written(id));
        }
        if self.links[&id].silent {
            return true;
        }
        let number = numbers[usize::from(forth)];
        numbers[usize::from(forth)] += 1;
        let memory = self.links[&id].to_receiver.memory(&packet).filter(|_| forth);
        match mischief(Passing { to_receiver: forth, number, bytes: &packet, memory }) {
            Fate::Packets(packets) => {
                for packet in packets {
                    self.arrive(id, forth, &packet);
                }
            }
            Fate::Cut => self.cut(id),
            Fate::Silence => self.links.get_mut(&id).unwrap().silent = true,
        }
        true
    }

    fn cut(&mut self, id: LinkId) {
        let link = self.links.get_mut(&id).unwrap();
        if std::mem::replace(&mut link.dead, true) {
            return;
        }
        let joined = link.joined;
        self.send(SendEvent::Lost(id, Error::Cut(None)));
        if joined {
            self.receive(RecvEvent::Lost(id, None));
        }
    }

    fn arrive(&mut self, id: LinkId, forth: bool, packet: &[u8]) {
        let link = self.links.get_mut(&id).unwrap();
        if link.dead {
            return;
        }
        let way = if forth { &mut link.to_receiver } else { &mut link.to_sender };
        match way.read(packet) {
            Ok(frames) => frames.into_iter().for_each(|frame| self.frame(id, forth, frame)),
            Err(fault) if fault.is_of_the_link() && forth && self.links[&id].joined => {
                self.receive(RecvEvent::Garbled(id));
            }
            // the listener drops what is no greeting
            Err(_) if forth && !self.links[&id].joined => {
                self.count("bad_greeting");
                self.cut(id);
            }
            Err(fault) if fault.is_of_the_link() => {
                self.send(SendEvent::Garbled(id));
            }
            Err(fault) => {
                let reason = Reason::Protocol { fault: fault.to_string() };
                if forth {
                    self.receive(RecvEvent::GiveUp(reason));
                } else {
                    self.send(SendEvent::GiveUp(reason));
                }
            }
        }
    }

    fn frame(&mut self, id: LinkId, forth: bool, frame: Frame) {
        match frame {
            // the listener's: the rest of a greeting is tested apart
            // another link's greeting, played again
            Frame::Hello(hello) if forth && !self.links[&id].joined && hello.link != id => {
                self.receive(RecvEvent::Refused);
                self.cut(id);
            }
            Frame::Hello(_) if forth && !self.links[&id].joined => {
                assert!(self.receiver.may_join(id) || self.received.is_some());
                self.greeted += 1;
                self.links.get_mut(&id).unwrap().joined = true;
                match &self.received {
                    None => {
                        self.receive(RecvEvent::Joined { link: id, borrows: self.lends });
                    }
                    Some(Ok(receipt)) => {
                        let receipt = *receipt;
                        let link = self.links.get_mut(&id).unwrap();
                        link.to_sender
                            .write(&Frame::Welcome { incarnation: ticket().incarnation, borrows: false });
                        link.to_sender.write(&Frame::Committed(receipt));
                    }
                    Some(Err(_)) => {
                        let link = self.links.get_mut(&id).unwrap();
                        link.to_sender.write(&Frame::Abort(Reason::TicketUsed));
                    }
                }
            }
            frame if forth => self.receive(RecvEvent::Frame(id, frame)),
            frame => self.send(SendEvent::Frame(id, frame)),
        }
    }

    fn tick(&mut self) {
        self.now += Duration::from_millis(50);
        self.send(SendEvent::Tick);
        self.receive(RecvEvent::Tick);
        // whoever has finished closes its connections
        if self.verdict.is_some() || self.received.is_some() {
            for id in self.links.keys().copied().collect::<Vec<_>>() {
                let link = &self.links[&id];
                if self.verdict.is_some() || (link.joined && link.to_sender.packets.is_empty()) {
                    self.cut(id);
                }
            }
        }
    }

    fn count(&mut self, kind: &'static str) {
        *self.faults.entry(kind).or_default() += 1;
    }

    fn send(&mut self, event: SendEvent) {
        let mut actions = Vec::new();
        self.sender.on(event, self.now, &mut actions);
        for action in actions {
            match action {
                SendAction::Dial(id) => {
                    let mut forth = Way::new(Direction::ToReceiver, &self.key, id, self.manifest);
                    if self.lends {
                        forth.borrow();
                    }
                    let back = Way::new(Direction::ToSender, &self.key, id, self.manifest);
                    let mut link = Link {
                        to_receiver: forth,
                        to_sender: back,
                        joined: false,
                        silent: false,
                        dead: false,
                    };
                    link.to_receiver.write(&Frame::Hello(hello(id)));
                    self.links.insert(id, link);
                    self.send(SendEvent::Dialled { link: id, kept: false });
                }
                SendAction::Write(id, frame) => {
                    if let Some(link) = self.links.get_mut(&id).filter(|link| !link.dead) {
                        link.to_receiver.write(&frame);
                    }
                }
                SendAction::Drop(id) => self.hang_up(id, true),
                SendAction::Stale => panic!("no link was kept"),
                SendAction::Fault(kind) => self.count(kind),
                SendAction::Finish(verdict) => {
                    match &verdict {
                        Verdict::Held(_) => {}
                        Verdict::Revoked(error) => self.count(error.kind()),
                        Verdict::Unknown(_) => self.count("in_doubt"),
                    }
                    assert!(self.verdict.replace(verdict).is_none());
                }
            }
        }
    }

    /// One end closes; the other hears of it, unless the link passes nothing.
    fn hang_up(&mut self, id: LinkId, sender: bool) {
        let link = self.links.get_mut(&id).unwrap();
        let (joined, silent) = (link.joined, link.silent);
        if std::mem::replace(&mut link.dead, true) || silent {
            return;
        }
        if !sender {
            self.send(SendEvent::Lost(id, Error::Cut(None)));
        } else if joined {
            self.receive(RecvEvent::Lost(id, None));
        }
    }

    fn receive(&mut self, event: RecvEvent) {
        let mut actions = Vec::new();
        self.receiver.on(event, self.now, &mut actions);
        self.most_staged = self.most_staged.max(self.receiver.staged());
        for action in actions {
            match action {
                RecvAction::Write(id, frame) => {
                    if let Some(link) = self.links.get_mut(&id).filter(|link| !link.dead) {
                        link.to_sender.write(&frame);
                    }
                }
                RecvAction::Drop(id) => self.hang_up(id, false),
                RecvAction::Accept { sequence, segment } => {
                    assert!(!self.committed());
                    // panics when a unit comes twice
                    self.sunk.add(segment.id, &segment.payload);
                    self.at_sink.push_back(sequence);
                }
                RecvAction::Commit(_) => {
                    self.commits += 1;
                    self.receive(RecvEvent::Committed);
                }
                RecvAction::Fault(kind) => self.count(kind),
                RecvAction::Finish(end) => {
                    if let Err(error) = &end {
                        self.count(error.kind());
                    }
                    assert!(self.received.replace(end).is_none());
                }
            }
        }
    }
}

fn hello(link: LinkId) -> Hello {
    let ticket = ticket();
    Hello {
        ticket: ticket.id,
        incarnation: ticket.incarnation,
        sender: Incarnation([6; 16]),
        link,
        links: 1,
        state_pos: STATE_POS,
        layout: LAYOUT,
        format: F32_DENSE,
        lent: None,
        proof: [0; 32],
    }
}
