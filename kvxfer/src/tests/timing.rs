use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use net::{AnyStream, Connect, Listener, Network, Traffic};
use prometheus_client::registry::Registry;
use tokio::io::DuplexStream;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::book::OneTicket;
use super::state::{LAYOUT, Ready, STATE_POS, State, Units, ticket};
use crate::ends::Source;
use crate::error::Error;
use crate::meters::Meters;
use crate::pace::{Bounds, Pace};
use crate::reason::Reason;
use crate::recv::driver::{Receiver, Served};
use crate::segment::Segment;
use crate::send::driver::Sender;
use crate::ticket::{Incarnation, Receipt, Ticket, TicketId};
use crate::verdict::Verdict;

fn meters() -> Meters {
    Meters::register(&mut Registry::default())
}

fn receiver(meters: &Meters) -> Receiver {
    Receiver::new(Pace::default(), Bounds::default(), meters.clone())
}

fn segments() -> Vec<Segment> {
    State::new(LAYOUT, STATE_POS).segments(8)
}

fn idle(meters: &Meters) {
    assert_eq!((meters.staging_bytes(), meters.sessions_held()), (0, 0));
}

/// Connects once, in memory.
#[derive(Debug)]
struct Once(Mutex<Option<DuplexStream>>);

#[async_trait]
impl Connect for Once {
    async fn bind(&self, _: &str, _: Traffic) -> io::Result<Listener> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn connect(&self, _: &str, _: Traffic) -> io::Result<AnyStream> {
        match self.0.lock().unwrap().take() {
            Some(stream) => Ok(Box::new(stream)),
            None => Err(io::ErrorKind::ConnectionRefused.into()),
        }
    }
}

async fn sending(
    stream: DuplexStream,
    source: impl Source,
    meters: &Meters,
    cancel: &CancellationToken,
) -> Result<Receipt, Error> {
    sending_to(&ticket(), stream, source, meters, cancel).await
}

async fn sending_to(
    ticket: &Ticket,
    stream: DuplexStream,
    source: impl Source,
    meters: &Meters,
    cancel: &CancellationToken,
) -> Result<Receipt, Error> {
    let once: Network = Arc::new(Once(Mutex::new(Some(stream))));
    let sender = Sender::new(once, Pace::default(), meters.clone());
    match sender.send(ticket, Incarnation(rand::random()), source, cancel).await {
        Verdict::Held(receipt) => Ok(receipt),
        Verdict::Revoked(error) => Err(error),
        Verdict::Unknown(error) => panic!("unknown: {error}"),
    }
}

async fn receiving(receiver: &Receiver, stream: DuplexStream, book: &OneTicket) -> Result<Receipt, Error> {
    match receiver.receive(receiver.accepted(stream, None), "opened", book).await.0? {
        Served::Committed(receipt) => Ok(receipt),
        Served::Joined => panic!("joined what?"),
    }
}

/// A source whose every segment takes a while.
struct Slow(Ready, Duration);

impl Source for Slow {
    async fn next(&mut self) -> Result<Option<Segment>, Reason> {
        // cancel safe: the wait starts over, the segment stays
        sleep(self.1).await;
        self.0.next().await
    }
}

/// A source that computes for a long time before its first segment.
struct Late(Ready, Instant);

impl Source for Late {
    async fn next(&mut self) -> Result<Option<Segment>, Reason> {
        tokio::time::sleep_until(self.1).await;
        self.0.next().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_computes_for_an_hour_is_no_stall() {
    let (here, there) = tokio::io::duplex(4096);
    let (ours, theirs) = (meters(), meters());
    let book = OneTicket::new();
    let source = Late(Ready::new(segments()), Instant::now() + Duration::from_secs(3600));
    let (receiver, cancel) = (receiver(&theirs), CancellationToken::new());
    let (sent, received) =
        tokio::join!(sending(here, source, &ours, &cancel), receiving(&receiver, there, &book));
    assert_eq!(sent.unwrap(), received.unwrap());
    assert_eq!(*book.place().sunk.lock().unwrap(), Units::of(&segments()));
    idle(&ours);
    idle(&theirs);
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_a_stall_after_two_seconds() {
    let ours = meters();
    let (here, _silent) = tokio::io::duplex(4096);
    let started = Instant::now();
    let sent = sending(here, Ready::new(segments()), &ours, &CancellationToken::new()).await;
    // noticed after two seconds; the replacement is refused
    assert!(matches!(sent, Err(Error::Unreachable { .. })), "{sent:?}");
    assert!(started.elapsed() < Duration::from_secs(3));
    assert_eq!(ours.faults("link_stalled"), 1);
    idle(&ours);

    let theirs = meters();
    let (_silent, there) = tokio::io::duplex(4096);
    let received = receiving(&receiver(&theirs), there, &OneTicket::new()).await;
    assert!(matches!(received, Err(Error::GaveUp(Reason::Stalled))), "{received:?}");
    idle(&theirs);
}

#[tokio::test(start_paused = true)]
async fn a_sink_without_progress_ends_the_transfer_with_a_reason() {
    let (here, there) = tokio::io::duplex(4096);
    let (ours, theirs) = (meters(), meters());
    let book = OneTicket { slowness: Duration::from_secs(3600), ..OneTicket::new() };
    let (receiver, cancel) = (receiver(&theirs), CancellationToken::new());
    let (sent, received) = tokio::join!(
        sending(here, Ready::new(segments()), &ours, &cancel),
        receiving(&receiver, there, &book)
    );
    assert!(matches!(sent, Err(Error::PeerGaveUp(Reason::Sink { .. }))), "{sent:?}");
    assert!(matches!(received, Err(Error::GaveUp(Reason::Sink { .. }))));
    assert!(book.place().freed());
    assert!(book.closed.lock().unwrap().as_ref().is_some_and(Result::is_err));
    idle(&ours);
    idle(&theirs);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_during_the_transfer_ends_it() {
    let (here, there) = tokio::io::duplex(4096);
    let (ours, theirs) = (meters(), meters());
    let book = OneTicket::new();
    let (receiver, cancel) = (receiver(&theirs), CancellationToken::new());
    let slow = Slow(Ready::new(segments()), Duration::from_millis(300));
    let (sent, received, _) =
        tokio::join!(sending(here, slow, &ours, &cancel), receiving(&receiver, there, &book), async {
            sleep(Duration::from_secs(1)).await;
            book.lease_ended.send_replace(true)
        });
    assert!(matches!(sent, Err(Error::PeerGaveUp(Reason::LeaseExpired))), "{sent:?}");
    assert!(received.is_err() && book.place().freed());
}

#[tokio::test(start_paused = true)]
async fn transfers_beyond_the_staging_room_wait_and_then_run() {
    let theirs = meters();
    let bounds = Bounds { window: 1 << 20, staging: 1 << 20, connections: 8, links: 1 };
    let receiver = Arc::new(Receiver::new(Pace::default(), bounds, theirs.clone()));
    let books = [1, 2, 3].map(|id| OneTicket { id: TicketId([id; 16]), ..OneTicket::new() });
    let cancel = CancellationToken::new();
    let one = async |book: &OneTicket| {
        let (here, there) = tokio::io::duplex(4096);
        let ours = meters();
        let slow = Late(Ready::new(segments()), Instant::now() + Duration::from_secs(30));
        let ticket = Ticket { id: book.id, ..ticket() };
        let sending = sending_to(&ticket, here, slow, &ours, &cancel);
        let (sent, received) = tokio::join!(sending, receiving(&receiver, there, book));
        assert_eq!(sent.unwrap(), received.unwrap());
    };
    let [a, b, c] = &books;
    tokio::join!(one(a), one(b), one(c));
    idle(&theirs);
}
