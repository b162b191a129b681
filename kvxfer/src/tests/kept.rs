//! Connections that serve one transfer after another.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use net::{Network, Traffic};
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::book::{OneTicket, Room};
use super::loopback::segments;
use super::state::{Ready, Units, ticket};
use super::tls::tls;
use crate::ends::TicketBook;
use crate::error::Error;
use crate::meters::Meters;
use crate::pace::{Bounds, Pace};
use crate::reason::Reason;
use crate::recv::driver::Receiver;
use crate::recv::listener::serve;
use crate::send::driver::Sender;
use crate::ticket::{Expected, Incarnation, Receipt, Ticket, TicketId};
use crate::verdict::Verdict;

/// A receiver with tickets 0, 1, 2, ...
struct Many(Vec<OneTicket>);

impl Many {
    fn new(count: u8, incarnation: Incarnation) -> Arc<Many> {
        let one = |number| {
            let book = OneTicket { id: TicketId([number; 16]), ..OneTicket::new() };
            book.expected.lock().unwrap().incarnation = incarnation;
            book
        };
        Arc::new(Many((0..count).map(one).collect()))
    }

    fn of(&self, id: &TicketId) -> &OneTicket {
        &self.0[usize::from(id.0[0])]
    }
}

impl TicketBook for Many {
    type Sink = Room;

    fn look_up(&self, id: &TicketId) -> Option<Expected> {
        self.0.get(usize::from(id.0[0]))?.look_up(id)
    }

    fn open(&self, id: &TicketId) -> Result<Room, Reason> {
        self.of(id).open(id)
    }

    fn renew(&self, _: &TicketId) {}

    async fn revoked(&self, id: &TicketId) -> Reason {
        self.of(id).revoked(id).await
    }

    fn close(&self, id: &TicketId, end: &Result<Receipt, Error>) {
        self.of(id).close(id, end);
    }
}

struct Serving {
    book: Arc<Many>,
    meters: Meters,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Serving {
    /// On this port, or any. Gives out where.
    async fn at(network: &Network, address: &str, book: Arc<Many>) -> (Serving, String) {
        let listener = network.bind(address, Traffic::Bulk).await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let meters = Meters::register(&mut Registry::default());
        let receiver = Arc::new(Receiver::new(Pace::default(), Bounds::default(), meters.clone()));
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve(listener, receiver, Arc::clone(&book), stop.clone()));
        (Serving { book, meters, stop, task }, endpoint)
    }

    /// Whether this ticket's state is there, whole and once.
    fn has(&self, number: u8) -> bool {
        let place = self.book.0[usize::from(number)].place();
        place.receipt.lock().unwrap().is_some() && *place.sunk.lock().unwrap() == Units::of(&segments(1))
    }

    async fn drained(self) {
        self.stop.cancel();
        timeout(Duration::from_millis(300), self.task).await.expect("kept links hold nothing up").unwrap();
        assert_eq!((self.meters.staging_bytes(), self.meters.sessions_held()), (0, 0));
    }
}

struct Sending {
    sender: Sender,
    meters: Meters,
    endpoint: String,
    incarnation: Incarnation,
}

impl Sending {
    fn to(network: Network, endpoint: String) -> Sending {
        let meters = Meters::register(&mut Registry::default());
        let sender = Sender::new(network, Pace::default(), meters.clone());
        Sending { sender, meters, endpoint, incarnation: ticket().incarnation }
    }

    async fn send(&self, number: u8) {
        let id = TicketId([number; 16]);
        let (endpoint, incarnation) = (self.endpoint.clone(), self.incarnation);
        let ticket = Ticket { id, endpoint, incarnation, ..ticket() };
        let attempt = Incarnation(rand::random());
        let source = Ready::new(segments(7));
        let verdict = self.sender.send(&ticket, attempt, source, &CancellationToken::new()).await;
        assert!(matches!(verdict, Verdict::Held(_)), "{verdict:?}");
    }

    fn links(&self) -> [u64; 3] {
        ["opened", "reused", "dead"].map(|how| self.meters.links(how))
    }
}

/// Something between the two that remembers what was said to the receiver.
#[derive(Clone)]
pub(super) struct Middle {
    pub(super) endpoint: String,
    pub(super) heard: Arc<Mutex<Vec<u8>>>,
    /// Nothing passes any more, and nobody is told.
    deaf: Arc<AtomicBool>,
    /// Said to the receiver on every connection there is.
    say: Arc<Mutex<Vec<mpsc::UnboundedSender<Vec<u8>>>>>,
}

impl Middle {
    pub(super) async fn before(target: String) -> Middle {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let middle = Middle { endpoint, heard: Arc::default(), deaf: Arc::default(), say: Arc::default() };
        let each = middle.clone();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(&target).await.unwrap();
                // connections made later pass
                each.deaf.store(false, Ordering::SeqCst);
                tokio::spawn(each.clone().pass(near, far));
            }
        });
        middle
    }

    async fn pass(self, near: TcpStream, far: TcpStream) {
        let (said, mut saying) = mpsc::unbounded_channel::<Vec<u8>>();
        self.say.lock().unwrap().push(said);
        let ((mut from, mut back), (mut answers, mut to)) = (near.into_split(), far.into_split());
        let mut some = vec![0; 64 << 10];
        let mut answer = vec![0; 4 << 10];
        let mut deaf = false;
        loop {
            tokio::select! {
                Ok(count) = from.read(&mut some) => {
                    deaf |= self.deaf.load(Ordering::SeqCst);
                    if count == 0 {
                        return;
                    }
                    if !deaf {
                        self.heard.lock().unwrap().extend_from_slice(&some[..count]);
                        to.write_all(&some[..count]).await.unwrap();
                    }
                }
                Ok(count) = answers.read(&mut answer) => {
                    if count == 0 {
                        return;
                    }
                    back.write_all(&answer[..count]).await.unwrap();
                }
                Some(words) = saying.recv() => to.write_all(&words).await.unwrap(),
                else => return,
            }
        }
    }
}

async fn many_over_one_connection(network: Network) {
    let (serving, endpoint) = Serving::at(&network, "127.0.0.1:0", Many::new(4, ticket().incarnation)).await;
    let sending = Sending::to(network, endpoint);
    for number in 0..4 {
        sending.send(number).await;
        assert!(serving.has(number));
    }
    // asked again: the answer comes over the same connection too
    sending.send(2).await;
    assert_eq!(sending.links(), [1, 4, 0]);
    assert_eq!(["opened", "reused"].map(|how| serving.meters.links(how)), [1, 4]);
    serving.drained().await;
}

#[tokio::test]
async fn one_connection_serves_transfer_after_transfer() {
    many_over_one_connection(net::system()).await;
}

#[tokio::test]
async fn one_tls_connection_serves_transfer_after_transfer() {
    many_over_one_connection(tls()).await;
}

#[tokio::test]
async fn a_kept_connection_that_is_dead_and_does_not_show_it_costs_a_moment() {
    let (serving, endpoint) =
        Serving::at(&net::system(), "127.0.0.1:0", Many::new(2, ticket().incarnation)).await;
    let middle = Middle::before(endpoint).await;
    let sending = Sending::to(net::system(), middle.endpoint.clone());
    sending.send(0).await;
    middle.deaf.store(true, Ordering::SeqCst);
    let started = Instant::now();
    sending.send(1).await;
    assert!(started.elapsed() < Duration::from_secs(1));
    assert!(serving.has(1));
    assert_eq!(sending.links(), [2, 1, 1]);
    assert_eq!(["link_lost", "link_stalled"].map(|kind| sending.meters.faults(kind)), [0, 0]);
    serving.drained().await;
}

#[tokio::test]
async fn a_receiver_that_was_started_again_gets_new_connections() {
    let (network, first) = (net::system(), ticket().incarnation);
    let (serving, endpoint) = Serving::at(&network, "127.0.0.1:0", Many::new(2, first)).await;
    let mut sending = Sending::to(network.clone(), endpoint.clone());
    sending.send(0).await;
    serving.drained().await;
    // closed by the other side: of the same process, say
    let (serving, _) = Serving::at(&network, &endpoint, Many::new(2, first)).await;
    sending.send(1).await;
    assert!(serving.has(1));
    serving.drained().await;
    // another process
    sending.incarnation = Incarnation([77; 16]);
    let (serving, _) = Serving::at(&network, &endpoint, Many::new(2, sending.incarnation)).await;
    sending.send(0).await;
    assert!(serving.has(0));
    assert_eq!(sending.meters.links("opened"), 3);
    assert_eq!(sending.meters.faults("link_lost"), 0);
    serving.drained().await;
}

/// Whatever was said before, said again where the next greeting is due: it opens nothing and changes nothing.
#[tokio::test]
async fn what_was_said_on_a_kept_connection_is_worth_nothing_there_again() {
    for from_keep_on in [false, true] {
        let (serving, endpoint) =
            Serving::at(&net::system(), "127.0.0.1:0", Many::new(4, ticket().incarnation)).await;
        let middle = Middle::before(endpoint).await;
        let sending = Sending::to(net::system(), middle.endpoint.clone());
        sending.send(0).await;
        let first = middle.heard.lock().unwrap().len();
        sending.send(1).await;
        let heard = middle.heard.lock().unwrap().clone();
        let again = if from_keep_on { heard[first..].to_vec() } else { heard };
        middle.say.lock().unwrap()[0].send(again).unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        // a part given to a sink twice would panic there
        for number in 2..4 {
            sending.send(number).await;
        }
        assert!((0..4).all(|number| serving.has(number)));
        assert_eq!(sending.meters.links("opened"), 2);
        serving.drained().await;
    }
}
