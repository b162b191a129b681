use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep_until, timeout};

use super::{RecvAction, RecvEvent, RecvSession, check_hello};
use crate::ends::TicketBook;
use crate::error::Error;
use crate::frame::{Frame, Hello};
use crate::key::{Direction, TransferKey};
use crate::manifest::Manifest;
use crate::meters::{Held, Meters};
use crate::pace::{Bounds, Pace};
use crate::reason::Reason;
use crate::ticket::{Expected, Receipt, TicketId};
use crate::wire::{Turn, Wire};

mod sink;

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
}

/// A greeting that was accepted.
struct Greeted {
    id: TicketId,
    expected: Expected,
    manifest: Manifest,
}

impl Receiver {
    pub fn new(pace: Pace, bounds: Bounds, meters: Meters) -> Receiver {
        let room = Semaphore::new(units(bounds.staging) as usize);
        Receiver { pace, bounds, meters, room }
    }

    pub(crate) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Serves one sender's connection to its end.
    pub async fn receive<S, B>(&self, stream: S, book: &B) -> Result<Receipt, Error>
    where
        S: AsyncRead + AsyncWrite + Unpin,
        B: TicketBook,
    {
        let mut wire = Wire::new(stream, Direction::ToSender);
        let started = now();
        let mut held = self.meters.hold();
        let end = match self.greeted(&mut wire, book).await {
            Ok(Greeted { expected: Expected { committed: Some(receipt), .. }, .. }) => {
                wire.push(Frame::Committed(receipt));
                drop(held);
                wire.close(self.pace.heartbeat).await;
                return Ok(receipt);
            }
            Ok(greeted) => self.transfer(&mut wire, book, &greeted, &mut held).await,
            Err(error) => Err(error),
        };
        let took = now() - started;
        self.meters.ended(&end, took);
        drop(held);
        wire.close(self.pace.heartbeat).await;
        end
    }

    /// Reads the greeting and checks it; says to the sender why not.
    async fn greeted<S, B>(&self, wire: &mut Wire<S>, book: &B) -> Result<Greeted, Error>
    where
        S: AsyncRead + AsyncWrite + Unpin,
        B: TicketBook,
    {
        let refused = match timeout(self.pace.greeting, read_hello(wire)).await {
            Ok(Ok(hello)) => match greet(hello, book) {
                Ok(greeted) => return Ok(greeted),
                Err(reason) => Error::GaveUp(reason),
            },
            Ok(Err(error)) => error,
            Err(_) => Error::GaveUp(Reason::Stalled),
        };
        if let Error::GaveUp(reason) = &refused {
            wire.push(Frame::Abort(reason.clone()));
        }
        Err(refused)
    }

    async fn transfer<S, B>(
        &self,
        wire: &mut Wire<S>,
        book: &B,
        greeted: &Greeted,
        held: &mut Held,
    ) -> Result<Receipt, Error>
    where
        S: AsyncRead + AsyncWrite + Unpin,
        B: TicketBook,
    {
        let Greeted { id, expected, manifest } = greeted;
        let sink = match book.open(id) {
            Ok(sink) => sink,
            Err(reason) => {
                wire.push(Frame::Abort(reason.clone()));
                return Err(Error::GaveUp(reason));
            }
        };
        let mut open = Open { book, id, end: Err(Error::GaveUp(Reason::Cancelled)) };
        let key = TransferKey::derive(&expected.secret, id, expected.state_pos, &expected.incarnation);
        wire.trust(&key, *manifest);
        let session = RecvSession::new(*manifest, expected.incarnation, key, self.pace, now());
        let window = self.bounds.window.max(manifest.largest_segment());
        let mut receiving = Receiving { session, wire, held, renewed: now() };
        open.end = receiving.run(self, window, sink, book, id).await;
        match &open.end {
            Ok(receipt) => Ok(*receipt),
            Err(error) => Err(error.same()),
        }
    }
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(ROOM_UNIT)).unwrap_or(u32::MAX).min(Semaphore::MAX_PERMITS as u32)
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

async fn read_hello<S: AsyncRead + AsyncWrite + Unpin>(wire: &mut Wire<S>) -> Result<Hello, Error> {
    let protocol = |fault: String| Error::GaveUp(Reason::Protocol { fault });
    loop {
        match wire.frame() {
            Ok(Some(Frame::Hello(hello))) => return Ok(hello),
            Ok(Some(other)) => return Err(protocol(format!("{} before the greeting", other.name()))),
            Ok(None) => {}
            Err(fault) => return Err(protocol(fault.to_string())),
        }
        match wire.turn(true).await {
            Ok(Turn::Wrote | Turn::Read) => {}
            Ok(Turn::Ended) => return Err(Error::Cut(None)),
            Err(fault) => return Err(Error::Cut(Some(fault))),
        }
    }
}

fn greet<B: TicketBook>(hello: Hello, book: &B) -> Result<Greeted, Reason> {
    let expected = book.look_up(&hello.ticket).ok_or(Reason::UnknownTicket)?;
    let manifest = check_hello(&hello, &expected)?;
    Ok(Greeted { id: hello.ticket, expected, manifest })
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

struct Receiving<'a, S> {
    session: RecvSession,
    wire: &'a mut Wire<S>,
    held: &'a mut Held,
    renewed: Instant,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Receiving<'_, S> {
    /// Feeds the session until it finishes. The sink is dropped before this returns, unless it has committed.
    async fn run<B: TicketBook>(
        &mut self,
        shared: &Receiver,
        window: u64,
        sink: B::Sink,
        book: &B,
        id: &TicketId,
    ) -> Result<Receipt, Error> {
        let (jobs, todo) = mpsc::unbounded_channel();
        let (finished, mut done) = mpsc::unbounded_channel();
        let mut sink = std::pin::pin!(work(sink, todo, finished));
        let mut room =
            std::pin::pin!(shared.room.acquire_many(units(window).min(units(shared.bounds.staging))));
        let mut revoked = std::pin::pin!(book.revoked(id));
        let mut admitted = None;
        let mut actions = Vec::new();
        loop {
            let deadline = self.session.deadline().into();
            let reading = self.session.reads();
            let event = tokio::select! {
                turn = self.wire.turn(reading) => match turn {
                    Ok(Turn::Wrote) => continue,
                    Ok(Turn::Read) => RecvEvent::Heard,
                    Ok(Turn::Ended) => RecvEvent::Closed(None),
                    Err(fault) => RecvEvent::Closed(Some(fault)),
                },
                permit = &mut room, if admitted.is_none() => {
                    admitted = Some(permit);
                    RecvEvent::Admitted { window }
                }
                () = &mut sink => RecvEvent::SinkFailed(Reason::Sink { fault: "ended early".to_owned() }),
                Some(done) = done.recv() => done_event(done),
                reason = &mut revoked, if reading => RecvEvent::GiveUp(reason),
                () = sleep_until(deadline) => RecvEvent::Tick,
            };
            let heard = matches!(event, RecvEvent::Heard);
            self.session.on(event, now(), &mut actions);
            if heard {
                if now() - self.renewed >= shared.pace.heartbeat {
                    self.renewed = now();
                    book.renew(id);
                }
                self.frames(&mut actions);
            }
            for action in actions.drain(..) {
                match action {
                    RecvAction::Write(frame) => self.wire.push(frame),
                    // the sink's end outlives its jobs, so a job always finds it
                    RecvAction::Accept { sequence, segment } => {
                        _ = jobs.send(Job::Accept { sequence, segment })
                    }
                    RecvAction::Commit(receipt) => _ = jobs.send(Job::Commit(receipt)),
                    RecvAction::Corrupt(id) => {
                        tracing::warn!(segment = %id, "digest does not match, asking again");
                        shared.meters.fault("corrupt_segment");
                    }
                    RecvAction::Finish(end) => return end,
                }
            }
            self.held.stage(self.session.staged() + self.wire.staged());
        }
    }

    fn frames(&mut self, actions: &mut Vec<RecvAction>) {
        while self.session.reads() {
            let event = match self.wire.frame() {
                Ok(Some(frame)) => RecvEvent::Frame(frame),
                Ok(None) => return,
                Err(fault) => {
                    let fault = fault.to_string();
                    RecvEvent::GiveUp(Reason::Protocol { fault })
                }
            };
            self.session.on(event, now(), actions);
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
