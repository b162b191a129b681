use std::sync::Arc;
use std::time::Duration;

use net::{Network, Traffic};
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::book::OneTicket;
use super::state::{LAYOUT, Ready, STATE_POS, State, Units, ticket};
use crate::ends::Source;
use crate::error::Error;
use crate::layout::Layout;
use crate::meters::Meters;
use crate::pace::{Bounds, Pace};
use crate::reason::Reason;
use crate::recv::driver::Receiver;
use crate::recv::listener::serve;
use crate::segment::Segment;
use crate::send::driver::Sender;
use crate::ticket::{Incarnation, Ticket};
use crate::verdict::Verdict;

/// A receiver on a loopback port, with the meters of both sides.
pub(super) struct Rig {
    pub(super) book: Arc<OneTicket>,
    pub(super) ticket: Ticket,
    sender: Sender,
    pub(super) ours: Meters,
    theirs: Meters,
    cancel: CancellationToken,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl Rig {
    async fn new(book: OneTicket, bounds: Bounds) -> Rig {
        Self::over(net::system(), book, bounds).await
    }

    pub(super) async fn over(network: Network, book: OneTicket, bounds: Bounds) -> Rig {
        Self::on(network, book, bounds, [false; 2]).await
    }

    /// Whether the sender lends its memory, and the receiver borrows it.
    pub(super) async fn on(
        network: Network,
        book: OneTicket,
        bounds: Bounds,
        [lends, borrows]: [bool; 2],
    ) -> Rig {
        let listener = network.bind("127.0.0.1:0", Traffic::Bulk).await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let (book, stop) = (Arc::new(book), CancellationToken::new());
        let ours = Meters::register(&mut Registry::default());
        let theirs = Meters::register(&mut Registry::default());
        let receiver = Arc::new(Receiver::new(Pace::default(), bounds, theirs.clone()).borrowing(borrows));
        let serving = tokio::spawn(serve(listener, receiver, Arc::clone(&book), stop.clone()));
        let ticket = Ticket { endpoint, ..ticket() };
        let sender = Sender::new(network, Pace::default(), ours.clone()).lending(lends);
        Rig { book, ticket, sender, ours, theirs, cancel: CancellationToken::new(), stop, serving }
    }

    /// Hands over a whole state of this shape, which leaves nothing behind.
    pub(super) async fn carries(mut self, layout: Layout, tokens: u32) {
        (self.ticket.layout, self.ticket.state_pos) = (layout, tokens);
        let all = State::new(layout, tokens).segments(256);
        let receipt = self.send(Ready::new(all.clone())).await.unwrap();
        assert_eq!(receipt.segments as usize, all.len());
        assert_eq!(*self.book.place().sunk.lock().unwrap(), Units::of(&all));
        self.all_given_back().await;
    }

    pub(super) async fn send(&self, source: impl Source) -> Result<crate::Receipt, Error> {
        let attempt = Incarnation(rand::random());
        match self.sender.send(&self.ticket, attempt, source, &self.cancel).await {
            Verdict::Held(receipt) => Ok(receipt),
            Verdict::Revoked(error) => Err(error),
            Verdict::Unknown(error) => panic!("unknown: {error}"),
        }
    }

    /// Waits for the receiver's end, then holds that nobody holds anything.
    pub(super) async fn all_given_back(self) {
        self.stop.cancel();
        self.serving.await.unwrap();
        assert!(self.book.place().freed());
        for meters in [&self.ours, &self.theirs] {
            assert_eq!((meters.staging_bytes(), meters.sessions_held()), (0, 0));
        }
    }
}

pub(super) fn segments(chunk: u32) -> Vec<Segment> {
    State::new(LAYOUT, STATE_POS).segments(chunk)
}

/// A source that has its first segments and then nothing for ever.
struct Stuck(Ready);

impl Source for Stuck {
    async fn next(&mut self) -> Result<Option<Segment>, Reason> {
        match self.0.next().await {
            Ok(None) => std::future::pending().await,
            segment => segment,
        }
    }
}

#[tokio::test]
async fn every_number_arrives_in_its_place_whatever_the_chunks() {
    for chunk in [1, 7, 16, 64] {
        let rig = Rig::new(OneTicket::new(), Bounds::default()).await;
        let receipt = rig.send(Ready::new(segments(chunk))).await.unwrap();
        assert_eq!(receipt.segments as usize, segments(chunk).len());
        assert_eq!(*rig.book.place().sunk.lock().unwrap(), Units::of(&segments(1)));
        // the answer was lost, say: the same ticket gives the same answer
        assert_eq!(rig.send(Ready::new(segments(chunk))).await.unwrap(), receipt);
        rig.all_given_back().await;
    }
}

#[tokio::test]
async fn a_slow_sink_bounds_what_is_staged_on_both_sides() {
    let wide = Layout { latent_width: 4096, ..LAYOUT };
    let tokens = 1024;
    let book = OneTicket { slowness: Duration::from_millis(4), ..OneTicket::of(wide, tokens) };
    let window = 2 << 20;
    let mut rig = Rig::new(book, Bounds { window, ..Bounds::default() }).await;
    rig.ticket = Ticket { layout: wide, state_pos: tokens, ..rig.ticket };
    let all = State::new(wide, tokens).segments(100);
    let bytes: usize = all.iter().map(|segment| segment.payload.len()).sum();
    assert!(bytes as u64 > 8 * window);

    let (mut here, mut there) = (0, 0);
    let receipt = {
        let mut sending = std::pin::pin!(rig.send(Ready::new(all)));
        loop {
            tokio::select! {
                end = &mut sending => break end.unwrap(),
                () = tokio::time::sleep(Duration::from_millis(1)) => {
                    here = here.max(rig.ours.staging_bytes());
                    there = there.max(rig.theirs.staging_bytes());
                }
            }
        }
    };
    assert_eq!(receipt.bytes, bytes as u64);
    // one segment beyond the window waits at the sender
    assert!(here > 0 && here <= (window + (1 << 20)) as i64, "{here}");
    assert!(there > 0 && there <= window as i64, "{there}");
    rig.all_given_back().await;
}

#[tokio::test]
async fn cancelling_the_sender_tells_the_receiver() {
    let rig = Rig::new(OneTicket::new(), Bounds::default()).await;
    let cancel = rig.cancel.clone();
    let mut some = segments(7);
    some.truncate(4);
    let cancelling = async {
        while rig.book.place().freed() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        cancel.cancel();
    };
    let (sent, ()) = tokio::join!(rig.send(Stuck(Ready::new(some))), cancelling);
    assert!(matches!(sent, Err(Error::GaveUp(Reason::Cancelled))), "{sent:?}");
    let (book, theirs) = (Arc::clone(&rig.book), rig.theirs.clone());
    rig.all_given_back().await;
    assert_eq!(*book.closed.lock().unwrap(), Some(Err(Error::PeerGaveUp(Reason::Cancelled).to_string())));
    assert_eq!(theirs.faults("cancelled"), 1);
}

#[tokio::test]
async fn a_sink_that_fails_tells_the_sender() {
    let refuses = Some(segments(7)[5].id);
    let rig = Rig::new(OneTicket { refuses, ..OneTicket::new() }, Bounds::default()).await;
    let sent = rig.send(Stuck(Ready::new(segments(7)))).await;
    assert!(matches!(&sent, Err(Error::PeerGaveUp(Reason::Sink { fault })) if fault == "full"), "{sent:?}");
    // a failed ticket is not opened again
    let again = rig.send(Ready::new(segments(7))).await;
    assert!(matches!(again, Err(Error::PeerGaveUp(Reason::TicketUsed))), "{again:?}");
    rig.all_given_back().await;
}

#[tokio::test]
async fn a_stranger_is_told_nothing_and_opens_nothing() {
    let mut rig = Rig::new(OneTicket::new(), Bounds::default()).await;
    rig.ticket.secret = crate::Secret([0; 32]);
    let sent = rig.send(Ready::new(segments(7))).await;
    assert!(matches!(sent, Err(Error::PeerGaveUp(Reason::UnknownTicket))), "{sent:?}");
    assert_eq!(*rig.book.closed.lock().unwrap(), None);
    let mut stranger = TcpStream::connect(&rig.ticket.endpoint).await.unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    stranger.read_to_end(&mut answer).await.unwrap();
    assert_eq!(rig.theirs.faults("protocol"), 1);
    rig.all_given_back().await;
}

/// Passes bytes to the rig's receiver and cuts both ways after `forth` bytes, or once `when` is ready.
async fn cutting_proxy(rig: &mut Rig, forth: usize, when: impl Future<Output = ()> + Send + 'static) {
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = std::mem::replace(&mut rig.ticket.endpoint, proxy.local_addr().unwrap().to_string());
    tokio::spawn(async move {
        let (mut sender, _) = proxy.accept().await.unwrap();
        let mut receiver = TcpStream::connect(&target).await.unwrap();
        let (mut from, mut back) = sender.split();
        let (mut answers, mut to) = receiver.split();
        let mut some = (&mut from).take(forth as u64);
        tokio::select! {
            _ = tokio::io::copy(&mut some, &mut to) => {}
            _ = tokio::io::copy(&mut answers, &mut back) => {}
            () = when => {}
        }
        drop((sender, receiver));
        // later connections pass
        while let Ok((mut sender, _)) = proxy.accept().await {
            let mut receiver = TcpStream::connect(&target).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut sender, &mut receiver).await });
        }
    });
}

#[tokio::test]
async fn a_connection_cut_anywhere_is_replaced() {
    let whole: usize = segments(7).iter().map(|segment| segment.payload.len()).sum();
    for cut in [1, 60, 150, 200, 700, whole / 2, whole] {
        let mut rig = Rig::new(OneTicket::new(), Bounds::default()).await;
        cutting_proxy(&mut rig, cut, std::future::pending()).await;
        rig.send(Ready::new(segments(7))).await.unwrap();
        assert_eq!(*rig.book.place().sunk.lock().unwrap(), Units::of(&segments(1)));
        assert!(rig.ours.faults("link_lost") > 0);
        rig.all_given_back().await;
    }
}

#[tokio::test]
async fn a_large_state_goes_over_several_connections() {
    let wide = Layout { latent_width: 8 << 10, ..LAYOUT };
    let tokens = 1100;
    let rig = Rig::new(OneTicket::of(wide, tokens), Bounds::default()).await;
    rig.carries(wide, tokens).await;
}

#[tokio::test]
async fn a_second_sender_of_a_ticket_under_way_is_refused() {
    let rig = Rig::new(OneTicket::new(), Bounds::default()).await;
    let first = rig.send(Stuck(Ready::new(segments(7))));
    let second = async {
        while rig.book.place().freed() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let second = rig.send(Ready::new(segments(7))).await;
        rig.cancel.cancel();
        second
    };
    let (first, second) = tokio::join!(first, second);
    assert!(matches!(first, Err(Error::GaveUp(Reason::Cancelled))), "{first:?}");
    assert!(matches!(second, Err(Error::PeerGaveUp(Reason::TicketUsed))), "{second:?}");
    rig.all_given_back().await;
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_found_by_asking_again() {
    let book = OneTicket { slowness: Duration::from_millis(5), ..OneTicket::new() };
    let mut rig = Rig::new(book, Bounds::default()).await;
    let mut committing = rig.book.place().committing.subscribe();
    let when = async move {
        committing.wait_for(|committing| *committing).await.unwrap();
    };
    cutting_proxy(&mut rig, usize::MAX, when).await;
    let receipt = rig.send(Ready::new(segments(7))).await.unwrap();
    assert_eq!(Some(receipt), *rig.book.place().receipt.lock().unwrap());
    rig.all_given_back().await;
}
