use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use bytes::Bytes;
use kvxfer::segment::chunk;
use kvxfer::{
    Bounds, Expected, FirstToken, Incarnation, Layout, Meters, Pace, Reason, Receipt, Receiver,
    SamplingState, Secret, Segment, SegmentId, Sender, Sink, Source, Ticket, TicketBook, TicketId, Verdict,
    serve,
};
use prometheus_client::registry::Registry;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use super::trial::{ARENA, Arena, Cut, PAGE, Plan, Stopwatch, Took, stay_on};

const INCARNATION: Incarnation = Incarnation([4; 16]);
const SECRET: Secret = Secret([3; 32]);

/// Latents alone, so that a state has any size; one token is a quarter of a page.
fn layout() -> Layout {
    Layout {
        latent_layers: 1,
        latent_width: (PAGE / 4 / 4) as u32,
        recurrent_layers: 0,
        heads: 0,
        key_dim: 0,
        value_dim: 0,
        tail_rows: 0,
        tail_width: 0,
        index_dim: 0,
        index_pool: 0,
        hidden: 0,
        vocabulary: 16,
        page_tokens: 4,
    }
}

/// The crate as its workers use it: a sender that opens its transfer before the state is there, and a receiver.
pub(crate) struct Ours {
    runtime: Runtime,
    endpoint: String,
    book: Arc<Book>,
    sender: Sender,
    sent: usize,
}

impl Ours {
    /// Payloads are read from memory, or go over the connection.
    pub(crate) fn new(memory: bool) -> Ours {
        let book = Arc::new(Book::default());
        let (told, listening) = mpsc::channel();
        let theirs = Arc::clone(&book);
        thread::spawn(move || {
            stay_on(1);
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = net::system().bind("127.0.0.1:0", net::Traffic::Bulk).await.unwrap();
                told.send(listener.local_addr().unwrap().to_string()).unwrap();
                let meters = Meters::register(&mut Registry::default());
                let bounds = Bounds { staging: 2 * ARENA as u64, ..Bounds::default() };
                let receiver = Receiver::new(Pace::default(), bounds, meters).borrowing(memory);
                serve(listener, Arc::new(receiver), theirs, CancellationToken::new()).await;
            });
        });
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let meters = Meters::register(&mut Registry::default());
        let sender = Sender::new(net::system(), Pace::default(), meters).lending(memory);
        Ours { runtime, endpoint: listening.recv().unwrap(), book, sender, sent: 0 }
    }

    /// Fills and turns over what the receiver holds, so that states land where earlier ones did, as in a worker that has been up
    /// for a while; the raw copy's target has been written to, too.
    pub(crate) fn warm_up(&mut self, arena: &Arena) {
        const STATE: usize = 64 << 20;
        self.run(arena, Plan { bytes: STATE, cut: Cut::Whole, count: ARENA / STATE });
    }

    pub(crate) fn run(&mut self, arena: &Arena, plan: Plan) -> Took {
        let mut took = Took::default();
        for _ in 0..plan.count {
            let (ticket, source) = self.next(arena, plan);
            self.transfer(&ticket, source, plan.bytes, &mut took);
        }
        took
    }

    fn next(&mut self, arena: &Arena, plan: Plan) -> (Ticket, Waiting) {
        let layout = layout();
        let token = layout.latent_width as usize * 4;
        let mut segments = VecDeque::new();
        let mut first = 0;
        for piece in arena.pieces(plan, self.sent) {
            let tokens = (piece.len() / token) as u32;
            segments.extend(chunk(&layout, first, tokens, &piece, &Bytes::new()).unwrap());
            first += tokens;
        }
        let sampling = SamplingState {
            seed: 1,
            position: first,
            first: FirstToken { id: 1, logprob: -1.0, top: vec![] },
            prompt_ids: vec![1],
            output_counts: vec![],
        };
        segments.push_back(Segment { id: SegmentId::Sampling, payload: sampling.encode() });
        let mut id = [0; 16];
        id[..8].copy_from_slice(&(self.sent as u64).to_le_bytes());
        self.sent += 1;
        let ticket = Ticket {
            id: TicketId(id),
            endpoint: self.endpoint.clone(),
            secret: SECRET,
            incarnation: INCARNATION,
            layout,
            state_pos: first,
        };
        self.book.reserve(ticket.id, first);
        (ticket, Waiting { segments, started: None })
    }

    fn transfer(&self, ticket: &Ticket, mut source: Waiting, bytes: usize, took: &mut Took) {
        let cancel = CancellationToken::new();
        let sending = self.sender.send(ticket, Incarnation(rand::random()), &mut source, &cancel);
        let sent = self.runtime.block_on(sending);
        took.stop(&source.started.unwrap(), bytes);
        assert!(matches!(sent, Verdict::Held(_)), "{sent:?}");
    }
}

/// The state appears when the transfer is open and asks for it, as after a prefill.
struct Waiting {
    segments: VecDeque<Segment>,
    started: Option<Stopwatch>,
}

impl Source for Waiting {
    async fn next(&mut self) -> Result<Option<Segment>, Reason> {
        self.started.get_or_insert_with(Stopwatch::start);
        Ok(self.segments.pop_front())
    }
}

#[derive(Default)]
struct Book {
    reserved: Mutex<HashMap<TicketId, u32>>,
    /// The newest states, where they landed.
    held: Arc<Mutex<Held>>,
}

#[derive(Default)]
struct Held {
    payloads: VecDeque<Bytes>,
    bytes: usize,
}

impl Book {
    fn reserve(&self, id: TicketId, state_pos: u32) {
        self.reserved.lock().unwrap().insert(id, state_pos);
    }
}

impl TicketBook for Book {
    type Sink = Room;

    fn look_up(&self, id: &TicketId) -> Option<Expected> {
        let state_pos = *self.reserved.lock().unwrap().get(id)?;
        Some(Expected {
            secret: SECRET,
            incarnation: INCARNATION,
            layout: layout(),
            state_pos,
            committed: None,
        })
    }

    fn open(&self, _: &TicketId) -> Result<Room, Reason> {
        let mut held = self.held.lock().unwrap();
        while held.bytes > ARENA / 2 {
            let oldest = held.payloads.pop_front().unwrap();
            held.bytes -= oldest.len();
        }
        Ok(Room { held: Arc::clone(&self.held) })
    }

    fn renew(&self, _: &TicketId) {}

    async fn revoked(&self, _: &TicketId) -> Reason {
        std::future::pending().await
    }

    fn close(&self, id: &TicketId, _: &Result<Receipt, kvxfer::Error>) {
        self.reserved.lock().unwrap().remove(id);
    }
}

/// Keeps every payload where it landed.
struct Room {
    held: Arc<Mutex<Held>>,
}

impl Sink for Room {
    async fn accept(&mut self, _: SegmentId, payload: Bytes) -> Result<(), Reason> {
        let mut held = self.held.lock().unwrap();
        held.bytes += payload.len();
        held.payloads.push_back(payload);
        Ok(())
    }

    async fn commit(&mut self, _: Receipt) -> Result<(), Reason> {
        Ok(())
    }
}
