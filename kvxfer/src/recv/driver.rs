use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep_until, timeout};

use super::{Allowance, RecvAction, RecvEvent, RecvSession};
use crate::awake::Awake;
use crate::ends::TicketBook;
use crate::error::Error;
use crate::frame::Frame;
use crate::key::{self, Direction};
use crate::landing::Landing;
use crate::local::Borrowed;
use crate::meters::{Held, Meters};
use crate::pace::{Bounds, Pace};
use crate::reason::Reason;
use crate::ticket::{Expected, Incarnation, LinkId, Receipt, TicketId};
use crate::wire::{Place, Stream, Turn, Wire, Wires};

mod greeting;
mod sink;

use greeting::{Greeted, greet, read_hello, rest};
use sink::{Done, Job, work};

/// Staging room is counted in pieces of this many bytes.
const ROOM_UNIT: u64 = 1 << 10;

/// What all transfers of one receiver share.
#[derive(Debug)]
pub struct Receiver {
    pace: Pace,
    bounds: Bounds,
    meters: Meters,
    room: Semaphore,
    /// Places for connections between two transfers; the others are for those that have one.
    idle: Semaphore,
    landing: Landing,
    /// Payloads may be read from the memory of senders on this host.
    borrows: bool,
    /// Transfers under way, for the further links of their senders.
    running: Mutex<HashMap<TicketId, Running>>,
}

#[derive(Debug)]
struct Running {
    sender: Incarnation,
    links: mpsc::UnboundedSender<(LinkId, Wire)>,
}

/// What became of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// It opened a transfer, or asked after one, that is committed.
    Committed(Receipt),
    /// It is a further link of a transfer under way.
    Joined,
}

impl Receiver {
    pub fn new(pace: Pace, bounds: Bounds, meters: Meters) -> Receiver {
        let room = Semaphore::new(units(bounds.staging) as usize);
        let idle = Semaphore::new(bounds.connections / 2);
        let landing = Landing::new(bounds.staging);
        Receiver { pace, bounds, meters, room, idle, landing, borrows: false, running: Mutex::default() }
    }

    /// Reads payloads from the memory of senders that run on the same host, where the system allows it.
    #[must_use]
    pub fn borrowing(self, borrows: bool) -> Receiver {
        Receiver { borrows, ..self }
    }

    pub(crate) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// A connection that was accepted.
    pub(crate) fn accepted(&self, stream: impl Stream + 'static, place: Option<Place>) -> Wire {
        Wire::new(stream, Direction::ToSender, self.landing.clone()).occupying(place)
    }

    /// Serves one connection, new or [rested](Receiver::rest): a whole transfer, if it is its first. Gives out the connections that are
    /// left of it.
    pub(crate) async fn receive<B: TicketBook>(
        &self,
        mut wire: Wire,
        how: &'static str,
        book: &B,
    ) -> (Result<Served, Error>, Vec<Wire>) {
        let greeted = match self.greeted(&mut wire, book).await {
            Ok(greeted) => greeted,
            Err(error) => return (Err(self.refuse(wire, error).await), vec![]),
        };
        self.meters.link(how);
        self.borrow(&greeted, &mut wire);
        wire.trust(&greeted.key(), greeted.link, greeted.manifest);
        if let Some(receipt) = greeted.expected.committed {
            let (incarnation, borrows) = (greeted.expected.incarnation, wire.borrows());
            wire.push(Frame::Welcome { incarnation, borrows });
            wire.push(Frame::Committed(receipt));
            wire.flush();
            return (Ok(Served::Committed(receipt)), vec![wire]);
        }
        let (_running, joining) = match self.join(&greeted, wire) {
            Joining::Joined => return (Ok(Served::Joined), vec![]),
            Joining::Refused(wire) => {
                let error = self.refuse(*wire, Error::GaveUp(Reason::TicketUsed)).await;
                return (Err(error), vec![]);
            }
            Joining::First(running, joining) => (running, joining),
        };
        let (end, left) = self.transfer(greeted, joining, book).await;
        (end.map(Served::Committed), left)
    }

    /// Waits on a connection whose transfer is over until the next greeting may follow; false when it is to be closed.
    pub(crate) async fn rest(&self, wire: &mut Wire) -> bool {
        let Ok(_place) = self.idle.try_acquire() else { return false };
        timeout(self.pace.idle * 3 / 2, rest(wire)).await.unwrap_or(false)
    }

    /// Ends a connection whose transfer is over.
    pub(crate) async fn close(&self, mut wire: Wire) {
        wire.flush();
        // its sender may keep it and not notice; with nothing unread here, closing takes none of our last words with it
        if wire.look() && wire.is_written() {
            return;
        }
        wire.close(self.pace.heartbeat).await;
    }

    /// Finds the memory that a sender says it lends.
    fn borrow(&self, greeted: &Greeted, wire: &mut Wire) {
        let Greeted { id, sender, link, expected, .. } = greeted;
        let Some(lent) = greeted.lent.filter(|_| self.borrows) else { return };
        if let Some(borrowed) = Borrowed::find(&lent, &key::mark(&expected.secret, id, sender, *link)) {
            wire.borrow(borrowed);
        }
    }

    async fn refuse(&self, mut wire: Wire, error: Error) -> Error {
        self.meters.fault(error.kind());
        if let Error::GaveUp(reason) = &error {
            wire.push(Frame::Abort(reason.clone()));
        }
        wire.close(self.pace.heartbeat).await;
        error
    }

    /// Reads the greeting and checks it.
    async fn greeted<B: TicketBook>(&self, wire: &mut Wire, book: &B) -> Result<Greeted, Error> {
        match timeout(self.pace.greeting, read_hello(wire)).await {
            Ok(Ok(hello)) => greet(hello, book).map_err(Error::GaveUp),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(Error::GaveUp(Reason::Stalled)),
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<TicketId, Running>> {
        // no code that can panic runs under the lock
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the connection to its transfer, or opens one for it.
    fn join(&self, greeted: &Greeted, wire: Wire) -> Joining<'_> {
        let mut running = self.running();
        match running.get(&greeted.id) {
            Some(transfer) if transfer.sender != greeted.sender => Joining::Refused(Box::new(wire)),
            Some(transfer) => match transfer.links.send((greeted.link, wire)) {
                Ok(()) => Joining::Joined,
                // it has just ended
                Err(unsent) => Joining::Refused(Box::new(unsent.0.1)),
            },
            None => {
                let (links, joining) = mpsc::unbounded_channel();
                // the channel is open: its other end is here
                _ = links.send((greeted.link, wire));
                running.insert(greeted.id, Running { sender: greeted.sender, links });
                Joining::First(Entry { receiver: self, id: greeted.id }, joining)
            }
        }
    }

    async fn transfer<B: TicketBook>(
        &self,
        greeted: Greeted,
        mut joining: mpsc::UnboundedReceiver<(LinkId, Wire)>,
        book: &B,
    ) -> (Result<Receipt, Error>, Vec<Wire>) {
        let started = now();
        let mut wires = Wires::default();
        let end = match book.open(&greeted.id) {
            Ok(sink) => {
                let mut open = Open { book, id: &greeted.id, end: Err(Error::GaveUp(Reason::Cancelled)) };
                let mut receiving = Receiving {
                    session: self.session(&greeted),
                    greeted: &greeted,
                    wires: &mut wires,
                    held: self.meters.hold(),
                    renewed: now(),
                    shared: self,
                };
                open.end = receiving.run(&mut joining, sink, book).await;
                match &open.end {
                    Ok(receipt) => Ok(*receipt),
                    Err(error) => Err(error.same()),
                }
            }
            Err(reason) => {
                if let Some((link, mut wire)) = joining.recv().await {
                    wire.push(Frame::Abort(reason.clone()));
                    wires.insert(link, wire);
                }
                Err(Error::GaveUp(reason))
            }
        };
        self.meters.ended(&end, now() - started);
        drop(joining);
        if end.is_ok() {
            return (end, wires.into_each().map(|(_, wire)| wire).collect());
        }
        wires.close(self.pace.heartbeat).await;
        (end, vec![])
    }

    fn session(&self, greeted: &Greeted) -> RecvSession {
        let Greeted { expected, manifest, .. } = greeted;
        let links = greeted.links.clamp(1, self.bounds.links.max(1));
        let window = (self.bounds.window / u64::from(links)).max(manifest.largest_segment());
        let allowance = Allowance { links, window };
        RecvSession::new(*manifest, expected.incarnation, self.pace, allowance, now())
    }
}

enum Joining<'a> {
    Joined,
    Refused(Box<Wire>),
    First(Entry<'a>, mpsc::UnboundedReceiver<(LinkId, Wire)>),
}

/// A transfer's place among those under way.
struct Entry<'a> {
    receiver: &'a Receiver,
    id: TicketId,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.receiver.running().remove(&self.id);
    }
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(ROOM_UNIT)).unwrap_or(u32::MAX).min(Semaphore::MAX_PERMITS as u32)
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Tells the book how an opened ticket ended, also when the transfer is dropped in the middle.
struct Open<'a, B: TicketBook> {
    book: &'a B,
    id: &'a TicketId,
    end: Result<Receipt, Error>,
}

impl<B: TicketBook> Drop for Open<'_, B> {
    fn drop(&mut self) {
        self.book.close(self.id, &self.end);
    }
}

struct Receiving<'a> {
    session: RecvSession,
    greeted: &'a Greeted,
    wires: &'a mut Wires,
    held: Held,
    renewed: Instant,
    shared: &'a Receiver,
}

impl Receiving<'_> {
    /// Feeds the session until it finishes. The sink is dropped before this returns, unless it has committed.
    async fn run<B: TicketBook>(
        &mut self,
        joining: &mut mpsc::UnboundedReceiver<(LinkId, Wire)>,
        sink: B::Sink,
        book: &B,
    ) -> Result<Receipt, Error> {
        let id = &self.greeted.id;
        let (jobs, todo) = mpsc::unbounded_channel();
        let (finished, mut done) = mpsc::unbounded_channel();
        let mut sink = std::pin::pin!(work(sink, todo, finished));
        let room = units(self.session.room()).min(units(self.shared.bounds.staging));
        let mut room = std::pin::pin!(self.shared.room.acquire_many(room));
        let mut revoked = std::pin::pin!(book.revoked(id));
        let mut admitted = None;
        let Expected { layout, state_pos, .. } = &self.greeted.expected;
        let mut awake = Awake::for_bytes(layout.state_bytes(*state_pos));
        let mut actions = Vec::new();
        loop {
            let open = self.session.open();
            let deadline = self.session.deadline(now()).into();
            let event = tokio::select! {
                (link, turn) = self.wires.turn() => match turn {
                    Ok(Turn::Written) => continue,
                    Ok(Turn::Read) => RecvEvent::Heard(link),
                    Ok(Turn::Ended) => self.gone(link, None),
                    Err(fault) => self.gone(link, Some(fault)),
                },
                Some((link, wire)) = joining.recv() => if self.session.may_join(link) {
                    let borrows = wire.borrows();
                    self.wires.insert(link, wire);
                    RecvEvent::Joined { link, borrows }
                } else {
                    RecvEvent::Refused
                },
                permit = &mut room, if admitted.is_none() => {
                    admitted = Some(permit);
                    RecvEvent::Admitted
                }
                () = &mut sink => RecvEvent::SinkFailed(Reason::Sink { fault: "ended early".to_owned() }),
                Some(done) = done.recv() => done_event(done),
                reason = &mut revoked, if open => RecvEvent::GiveUp(reason),
                () = sleep_until(deadline) => RecvEvent::Tick,
                () = awake.look(), if !awake.is_over() => continue,
            };
            awake.renew();
            match event {
                RecvEvent::Heard(link) => self.read(link, book, &mut actions),
                event => self.session.on(event, now(), &mut actions),
            }
            if let Some(end) = self.act(&mut actions, &jobs) {
                self.wires.flush();
                return end;
            }
        }
    }

    /// Does what the session asks for; gives out the end, if this is it.
    fn act(
        &mut self,
        actions: &mut Vec<RecvAction>,
        jobs: &mpsc::UnboundedSender<Job>,
    ) -> Option<Result<Receipt, Error>> {
        for action in actions.drain(..) {
            match action {
                RecvAction::Write(link, frame) => self.wires.push(link, frame),
                RecvAction::Drop(link) => drop(self.wires.remove(link)),
                // the sink's end outlives its jobs, so a job always finds it
                RecvAction::Accept { sequence, segment } => _ = jobs.send(Job::Accept { sequence, segment }),
                RecvAction::Commit(receipt) => _ = jobs.send(Job::Commit(receipt)),
                RecvAction::Fault(kind) => {
                    tracing::warn!(ticket = %self.greeted.id, kind, "fault on the way");
                    self.shared.meters.fault(kind);
                }
                RecvAction::Finish(end) => return Some(end),
            }
        }
        self.held.stage(self.session.staged() + self.wires.staged());
        None
    }

    fn gone(&mut self, link: LinkId, fault: Option<std::io::Error>) -> RecvEvent {
        self.wires.remove(link);
        RecvEvent::Lost(link, fault)
    }

    /// Gives the session every whole frame that has arrived on a link.
    fn read<B: TicketBook>(&mut self, link: LinkId, book: &B, actions: &mut Vec<RecvAction>) {
        if now() - self.renewed >= self.shared.pace.heartbeat {
            self.renewed = now();
            book.renew(&self.greeted.id);
        }
        self.session.on(RecvEvent::Heard(link), now(), actions);
        while let Some(wire) = self.wires.get(link) {
            let (event, last) = match wire.frame() {
                Ok(Some(frame)) => (RecvEvent::Frame(link, frame), false),
                Ok(None) => return,
                Err(fault) if fault.is_of_the_link() => (RecvEvent::Garbled(link), true),
                Err(fault) => {
                    let fault = fault.to_string();
                    (RecvEvent::GiveUp(Reason::Protocol { fault }), true)
                }
            };
            self.session.on(event, now(), actions);
            if last {
                return;
            }
        }
    }
}

fn done_event(done: Done) -> RecvEvent {
    match done {
        Done::Accepted { sequence } => RecvEvent::Accepted { sequence },
        Done::Committed => RecvEvent::Committed,
        Done::Failed(reason) => RecvEvent::SinkFailed(reason),
    }
}
