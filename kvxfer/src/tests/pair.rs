use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::BufMut;

use super::state::{LAYOUT, STATE_POS, Units, ticket};
use crate::error::Error;
use crate::frame::{Frame, FrameError, FrameReader, Hello, Tagger};
use crate::key::{Direction, TransferKey};
use crate::manifest::Manifest;
use crate::pace::Pace;
use crate::recv::{RecvAction, RecvEvent, RecvSession};
use crate::segment::Segment;
use crate::send::{SendAction, SendEvent, SendSession};
use crate::ticket::Receipt;

/// Both sessions with bytes between them, and a clock that stands still until neither has anything to do.
pub(super) struct Pair {
    pub(super) sender: SendSession,
    pub(super) receiver: RecvSession,
    to_receiver: Way,
    to_sender: Way,
    now: Instant,
    pub(super) sunk: Units,
    pub(super) committed: bool,
    pub(super) sent: Option<Result<Receipt, Error>>,
    pub(super) received: Option<Result<Receipt, Error>>,
    pub(super) most_staged: u64,
}

/// One direction's bytes.
struct Way {
    tagger: Tagger,
    reader: FrameReader,
    packets: VecDeque<Vec<u8>>,
}

impl Way {
    fn new(direction: Direction, key: &TransferKey, manifest: Manifest) -> Way {
        let (mut tagger, mut reader) = (Tagger::new(direction), FrameReader::new(direction));
        tagger.trust(key.clone());
        reader.trust(key.clone(), manifest);
        Way { tagger, reader, packets: VecDeque::new() }
    }

    fn write(&mut self, frame: &Frame) {
        let mut packet = self.tagger.head(frame).to_vec();
        if let Frame::Segment { payload, .. } = frame {
            packet.extend_from_slice(payload);
        }
        self.packets.push_back(packet);
    }

    /// Reads one packet in small pieces, as a slow network would bring it.
    fn read(&mut self, packet: &[u8]) -> Result<Vec<Frame>, FrameError> {
        let mut frames = Vec::new();
        for mut piece in packet.chunks(13) {
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

/// What happens to a packet on its way: (to the receiver?, its number, its bytes) -> the packets that arrive instead.
pub(super) type Mischief<'a> = &'a mut dyn FnMut(bool, usize, Vec<u8>) -> Vec<Vec<u8>>;

impl Pair {
    pub(super) fn new(window: u64) -> Pair {
        let ticket = ticket();
        let manifest = Manifest::new(LAYOUT, STATE_POS);
        let key = TransferKey::derive(&ticket.secret, &ticket.id, STATE_POS, &ticket.incarnation);
        let (now, pace) = (Instant::now(), Pace::default());
        let mut pair = Pair {
            sender: SendSession::new(manifest, ticket.incarnation, key.clone(), pace, now),
            receiver: RecvSession::new(manifest, ticket.incarnation, key.clone(), pace, now),
            to_receiver: Way::new(Direction::ToReceiver, &key, manifest),
            to_sender: Way::new(Direction::ToSender, &key, manifest),
            now,
            sunk: Units::default(),
            committed: false,
            sent: None,
            received: None,
            most_staged: 0,
        };
        // the greeting is the driver's; it takes number 0
        let hello = Frame::Hello(Hello {
            ticket: ticket.id,
            incarnation: ticket.incarnation,
            state_pos: STATE_POS,
            layout: LAYOUT,
            proof: [0; 32],
        });
        pair.to_receiver.write(&hello);
        let greeting = pair.to_receiver.packets.pop_front().unwrap();
        pair.to_receiver.read(&greeting).unwrap();
        pair.receive(RecvEvent::Admitted { window });
        pair
    }

    /// Runs until both sides have finished; packets go through `mischief`.
    pub(super) fn run(&mut self, segments: Vec<Segment>, mischief: Mischief) {
        let mut source = segments.into_iter();
        let mut numbers = [0; 2];
        while self.sent.is_none() || self.received.is_none() {
            let mut idle = true;
            if self.sent.is_none() && self.sender.wants_segment() {
                idle = false;
                self.send(source.next().map_or(SendEvent::SourceEnded, SendEvent::Segment));
            }
            for forth in [true, false] {
                let way = if forth { &mut self.to_receiver } else { &mut self.to_sender };
                let Some(packet) = way.packets.pop_front() else {
                    continue;
                };
                idle = false;
                let number = numbers[usize::from(forth)];
                numbers[usize::from(forth)] += 1;
                for packet in mischief(forth, number, packet) {
                    self.arrive(forth, &packet);
                }
            }
            if idle {
                self.tick();
            }
        }
    }

    fn arrive(&mut self, forth: bool, packet: &[u8]) {
        let way = if forth { &mut self.to_receiver } else { &mut self.to_sender };
        let give_up = |fault: FrameError| crate::reason::Reason::Protocol { fault: fault.to_string() };
        let frames = way.read(packet).map_err(give_up);
        match (frames, forth) {
            (Ok(frames), true) => frames.into_iter().for_each(|frame| self.receive(RecvEvent::Frame(frame))),
            (Ok(frames), false) => frames.into_iter().for_each(|frame| self.send(SendEvent::Frame(frame))),
            (Err(reason), true) => self.receive(RecvEvent::GiveUp(reason)),
            (Err(reason), false) => self.send(SendEvent::GiveUp(reason)),
        }
    }

    fn tick(&mut self) {
        self.now += Duration::from_millis(100);
        self.send(SendEvent::Tick);
        self.receive(RecvEvent::Tick);
        // one side has closed the connection
        if self.sent.is_some() {
            self.receive(RecvEvent::Closed(None));
        }
        if self.received.is_some() && self.sent.is_none() {
            self.send(SendEvent::Closed(None));
        }
    }

    fn send(&mut self, event: SendEvent) {
        let mut actions = Vec::new();
        self.sender.on(event, self.now, &mut actions);
        for action in actions {
            match action {
                SendAction::Write(frame) => self.to_receiver.write(&frame),
                SendAction::Finish(end) => assert!(self.sent.replace(end).is_none()),
            }
        }
    }

    fn receive(&mut self, event: RecvEvent) {
        let mut actions = Vec::new();
        self.receiver.on(event, self.now, &mut actions);
        self.most_staged = self.most_staged.max(self.receiver.staged());
        for action in actions {
            match action {
                RecvAction::Write(frame) => self.to_sender.write(&frame),
                RecvAction::Accept { sequence, segment } => {
                    assert!(!self.committed);
                    self.sunk.add(segment.id, &segment.payload);
                    self.receive(RecvEvent::Accepted { sequence });
                }
                RecvAction::Commit(_) => {
                    self.committed = true;
                    self.receive(RecvEvent::Committed);
                }
                RecvAction::Corrupt(_) => {}
                RecvAction::Finish(end) => assert!(self.received.replace(end).is_none()),
            }
        }
    }
}
