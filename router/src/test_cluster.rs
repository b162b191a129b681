//! A router over worker processes that are played by this one: real gRPC, scripted answers.
//!
//! Output token `i` of every request is the letter `a + i`, unless the cluster was told what to say; faults are set per
//! worker and last until changed.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use discovery::{InMemory, Registry, Seat};
use futures::{Stream, StreamExt, stream};
use process::Drain;
use proto::status::Fault;
use proto::v1::decode_server::{Decode, DecodeServer};
use proto::v1::prefill_server::{Prefill, PrefillServer};
use proto::v1::{
    Capacity, Committed, EndReason, Ended, ErrorReason, Fingerprint, FirstToken, HandedOver, Layout, Load,
    Logprobs, PrefillProgress, PrefillRequest, PrefillResponse, ReleaseRequest, ReleaseResponse,
    ReserveRequest, ReserveResponse, Role, RunRequest, RunResponse, Ticket, TokenDelta, TokenLogprob,
    WorkerRecord, prefill_response, run_response,
};
use telemetry::Meters;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::{Request, Response, Status, service::Routes};

use crate::{Config, Deps, Limits, Model, Router};

pub(crate) const CONFIG: Config = Config {
    limits: Limits { in_flight: 4, waiting: 0, wait: Duration::from_millis(200) },
    timeout: Duration::from_secs(10),
    retries: 1,
};

/// What a worker does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ill {
    /// Nothing.
    Not,
    /// The connection breaks after this many events.
    Breaks(usize),
    /// The stream ends after this many events.
    Silent(usize),
    /// Nothing comes after this many events.
    Hangs(usize),
    /// The transfer fails after this many events.
    Transfer(usize),
    /// It draws other tokens.
    Differs,
    /// Reservations are answered after this many milliseconds.
    Slow(u64),
}

#[derive(Clone, Debug)]
pub(crate) struct Worker {
    name: String,
    ill: Arc<Mutex<Ill>>,
    /// What to say, by all workers; letters, where that is nothing.
    script: Arc<Mutex<Vec<u32>>>,
    /// Tokens a step of decode draws.
    window: Arc<Mutex<usize>>,
    /// Tickets whose state has been handed over, by all workers.
    handed: watch::Sender<HashSet<String>>,
    /// By ticket: prompt length and most tokens.
    held: Arc<Mutex<HashMap<String, (u32, u32)>>>,
    record: WorkerRecord,
    seat: Arc<Mutex<Option<Seat>>>,
}

pub(crate) struct Cluster {
    pub(crate) router: Router,
    pub(crate) registry: InMemory,
    pub(crate) drain: Drain,
    pub(crate) workers: Vec<Worker>,
}

impl Cluster {
    /// As many workers as asked for, named p0, p1, ... and d0, d1, ...
    pub(crate) async fn start(config: Config, prefill: usize, decode: usize) -> Self {
        Self::of(crate::test_model::write, config, prefill, decode).await
    }

    /// A cluster whose model `write` writes.
    pub(crate) async fn of(write: fn(&Path), config: Config, prefill: usize, decode: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path());
        let model = Model::open(folder.path(), "demo".to_owned()).unwrap();
        let registry = InMemory::new();
        let drain = Drain::new();
        let deps = Deps {
            network: net::system(),
            members: registry.watch(),
            meters: Meters::new(),
            drain: drain.clone(),
            seed: || 7,
        };
        let router = Router::build(model, config, deps);
        let mut workers = Vec::new();
        let shared = (watch::Sender::default(), Arc::default(), Arc::new(Mutex::new(1)));
        for index in 0..prefill {
            workers.push(Worker::start(Role::Prefill, format!("p{index}"), &registry, &shared).await);
        }
        for index in 0..decode {
            workers.push(Worker::start(Role::Decode, format!("d{index}"), &registry, &shared).await);
        }
        Self { router, registry, drain, workers }
    }

    /// Every answer is `ids` from now on; the last should be an end token.
    pub(crate) fn says(&self, ids: Vec<u32>) {
        *self.workers[0].script.lock().unwrap() = ids;
    }

    /// Every decode step draws so many tokens from now on: that many less one are accepted drafts.
    pub(crate) fn draws(&self, tokens: usize) {
        *self.workers[0].window.lock().unwrap() = tokens;
    }

    pub(crate) fn falls_ill(&self, name: &str, ill: Ill) {
        *self.worker(name).ill.lock().unwrap() = ill;
    }

    /// The worker's membership ends.
    pub(crate) fn leaves(&self, name: &str) {
        self.worker(name).seat.lock().unwrap().take();
    }

    /// The worker is a member again.
    pub(crate) fn joins(&self, name: &str) {
        let worker = self.worker(name);
        *worker.seat.lock().unwrap() = Some(worker.sit(&self.registry));
    }

    fn worker(&self, name: &str) -> &Worker {
        self.workers.iter().find(|worker| worker.name == name).unwrap()
    }

    /// Waits until nothing is held anywhere.
    pub(crate) async fn all_is_free(&self) {
        for _ in 0..300 {
            let held = self.workers.iter().map(|worker| worker.held.lock().unwrap().len()).sum::<usize>();
            if held == 0 && self.router.metrics.permits_held.get() == 0 && self.drain.held() == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let held: Vec<_> =
            self.workers.iter().map(|worker| (&worker.name, worker.held.lock().unwrap())).collect();
        let permits = self.router.metrics.permits_held.get();
        panic!("still held: {held:?}, {permits} permits, {} tasks", self.drain.held());
    }
}

/// What all workers have in common: the tickets handed over, what to say, tokens a step.
type Shared = (watch::Sender<HashSet<String>>, Arc<Mutex<Vec<u32>>>, Arc<Mutex<usize>>);

impl Worker {
    async fn start(role: Role, name: String, registry: &InMemory, (handed, script, window): &Shared) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let record = record(role, &name, listener.local_addr().unwrap().to_string());
        let worker = Self {
            name,
            ill: Arc::new(Mutex::new(Ill::Not)),
            script: Arc::clone(script),
            window: Arc::clone(window),
            handed: handed.clone(),
            held: Arc::default(),
            record,
            seat: Arc::default(),
        };
        *worker.seat.lock().unwrap() = Some(worker.sit(registry));
        let routes =
            Routes::new(PrefillServer::new(worker.clone())).add_service(DecodeServer::new(worker.clone()));
        tokio::spawn(process::grpc::serve(Box::new(listener), routes, Drain::new()));
        worker
    }

    fn sit(&self, registry: &InMemory) -> Seat {
        let load = Load { free_pages: 100, free_slots: 8, ..Load::default() };
        registry.seat(self.record.clone(), load).unwrap()
    }

    fn ill(&self) -> Ill {
        *self.ill.lock().unwrap()
    }

    fn token(&self, index: u32) -> u32 {
        let scripted = self.script.lock().unwrap().get(index as usize).copied();
        scripted.unwrap_or_else(|| u32::from(b'a') + index) + u32::from(self.ill() == Ill::Differs)
    }

    /// `events` as this worker's illness lets them out; `held` lives as long as the stream.
    fn spoilt<T: Send + 'static>(&self, events: Vec<T>, held: Held) -> Events<T> {
        let events = stream::iter(events.into_iter().map(Ok)).then(|event| async {
            tokio::time::sleep(Duration::from_millis(2)).await;
            event
        });
        let fails = |status: Status| stream::iter([Err(status)]);
        let events: Events<T> = match self.ill() {
            Ill::Not | Ill::Differs | Ill::Slow(_) => Box::pin(events),
            Ill::Silent(after) => Box::pin(events.take(after)),
            Ill::Hangs(after) => Box::pin(events.take(after).chain(stream::pending())),
            Ill::Breaks(after) => Box::pin(events.take(after).chain(fails(Status::unknown("h2: reset")))),
            Ill::Transfer(after) => {
                let fault = Fault::new(ErrorReason::TransferFailed, "digest of latents 3 differs");
                Box::pin(events.take(after).chain(fails(fault.to_status())))
            }
        };
        Box::pin(events.inspect(move |_| {
            let _held = &held;
        }))
    }
}

type Events<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// One entry of a worker's book, gone when this is dropped.
struct Held {
    worker: Worker,
    ticket: String,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.worker.held.lock().unwrap().remove(&self.ticket);
    }
}

fn record(role: Role, name: &str, address: String) -> WorkerRecord {
    WorkerRecord {
        name: name.to_owned(),
        role: role.into(),
        incarnation: format!("{name}-1").into_bytes().into(),
        grpc_address: address,
        fingerprint: Some(Fingerprint { model: "demo".to_owned(), ..Fingerprint::default() }),
        layout: Some(Layout::default()),
        capacity: Some(Capacity { pages: 100, page_tokens: 16, slots: 8 }),
        ..WorkerRecord::default()
    }
}

fn logprobs(id: u32) -> Logprobs {
    let entry = TokenLogprob { token_id: id, logprob: -0.5, ..TokenLogprob::default() };
    Logprobs { chosen: Some(entry.clone()), top: vec![entry] }
}

#[tonic::async_trait]
impl Prefill for Worker {
    type RunStream = Events<PrefillResponse>;

    async fn run(&self, request: Request<PrefillRequest>) -> Result<Response<Self::RunStream>, Status> {
        use prefill_response::Event;
        let request = request.into_inner();
        let total_tokens = request.prompt_ids.len() as u32;
        let id = self.token(0);
        let first = FirstToken { token_id: id, logprobs: Some(logprobs(id)), ..FirstToken::default() };
        let events = [
            Event::Progress(PrefillProgress { done_tokens: total_tokens, total_tokens }),
            Event::FirstToken(first),
            Event::HandedOver(HandedOver::default()),
        ];
        let events = events.into_iter().map(|event| PrefillResponse { event: Some(event) }).collect();
        let ticket = request.ticket.unwrap_or_default().id;
        self.held.lock().unwrap().insert(ticket.clone(), (total_tokens, 0));
        let (handed, to) = (self.handed.clone(), ticket.clone());
        let events = self.spoilt(events, Held { worker: self.clone(), ticket }).inspect(move |event| {
            if let Ok(PrefillResponse { event: Some(Event::HandedOver(_)) }) = event {
                handed.send_modify(|tickets| {
                    tickets.insert(to.clone());
                });
            }
        });
        Ok(Response::new(Box::pin(events)))
    }
}

#[tonic::async_trait]
impl Decode for Worker {
    type RunStream = Events<RunResponse>;

    async fn reserve(&self, request: Request<ReserveRequest>) -> Result<Response<ReserveResponse>, Status> {
        let request = request.into_inner();
        if let Ill::Slow(millis) = self.ill() {
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
        let id = format!("{} {}", request.request_id, request.attempt);
        self.held.lock().unwrap().insert(id.clone(), (request.prompt_tokens, request.max_tokens));
        Ok(Response::new(ReserveResponse { ticket: Some(Ticket { id, ..Ticket::default() }) }))
    }

    async fn run(&self, request: Request<RunRequest>) -> Result<Response<Self::RunStream>, Status> {
        use run_response::Event;
        let RunRequest { ticket_id: ticket, end_token_ids, .. } = request.into_inner();
        let Some((prompt, most)) = self.held.lock().unwrap().get(&ticket).copied() else {
            return Err(Fault::new(ErrorReason::UnknownTicket, "no such ticket").to_status());
        };
        let ids: Vec<u32> = (1..most).map(|index| self.token(index)).collect();
        let end = ids.iter().position(|id| end_token_ids.contains(id)).map(|last| last + 1);
        let (ids, reason) = match end {
            Some(end) => (&ids[..end], EndReason::EndToken),
            None => (&ids[..], EndReason::Length),
        };
        let window = *self.window.lock().unwrap();
        let mut events = vec![Event::Committed(Committed::default())];
        for (position, step) in (prompt + 1..).step_by(window).zip(ids.chunks(window)) {
            let logprobs = step.iter().copied().map(logprobs).collect();
            events.push(Event::Delta(TokenDelta {
                position,
                token_ids: step.to_vec(),
                logprobs,
                drafted_tokens: (window - 1) as u32,
                accepted_tokens: (step.len() - 1) as u32,
            }));
        }
        events.push(Event::Ended(Ended { reason: reason.into() }));
        let events = events.into_iter().map(|event| RunResponse { event: Some(event) }).collect();
        let mut handed = self.handed.subscribe();
        let committed = ticket.clone();
        let events = self.spoilt(events, Held { worker: self.clone(), ticket });
        let wait = async move {
            handed.wait_for(|tickets| tickets.contains(&committed)).await.unwrap();
            events
        };
        Ok(Response::new(Box::pin(stream::once(wait).flatten())))
    }

    async fn release(&self, request: Request<ReleaseRequest>) -> Result<Response<ReleaseResponse>, Status> {
        self.held.lock().unwrap().remove(&request.into_inner().ticket_id);
        Ok(Response::new(ReleaseResponse {}))
    }
}
