use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use discovery::{InMemory, Seat};
use futures::{Stream, StreamExt, stream};
use net::Traffic;
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
use tokio::sync::watch;
use tonic::{Request, Response, Status, service::Routes};

use super::Ill;
use super::script::{Script, Sequence};

/// What all workers have in common. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) script: Arc<Mutex<Script>>,
    /// Tokens a step of decode draws.
    pub(super) window: Arc<Mutex<usize>>,
    pub(super) prefilled: Arc<Mutex<Vec<PrefillRequest>>>,
    /// Sequences that were handed over, by ticket.
    handed: watch::Sender<HashMap<String, Sequence>>,
}

impl Default for Shared {
    fn default() -> Self {
        let window = Arc::new(Mutex::new(1));
        Self { script: Arc::default(), window, prefilled: Arc::default(), handed: watch::Sender::default() }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Worker {
    pub(super) name: String,
    pub(super) ill: Arc<Mutex<Ill>>,
    /// By ticket: prompt length and most tokens.
    pub(super) held: Arc<Mutex<HashMap<String, (u32, u32)>>>,
    pub(super) seat: Arc<Mutex<Option<Seat>>>,
    /// How often it was started; its incarnation.
    pub(super) starts: Arc<Mutex<u32>>,
    shared: Shared,
    record: WorkerRecord,
}

impl Worker {
    pub(super) async fn start(role: Role, name: String, registry: &InMemory, shared: &Shared) -> Self {
        let listener = net::system().bind("127.0.0.1:0", Traffic::Calls).await.unwrap();
        let record = record(role, &name, listener.local_addr().unwrap().to_string());
        let worker = Self {
            name,
            ill: Arc::new(Mutex::new(Ill::Not)),
            held: Arc::default(),
            seat: Arc::default(),
            starts: Arc::new(Mutex::new(1)),
            shared: shared.clone(),
            record,
        };
        *worker.seat.lock().unwrap() = Some(worker.sit(registry));
        let routes =
            Routes::new(PrefillServer::new(worker.clone())).add_service(DecodeServer::new(worker.clone()));
        tokio::spawn(process::grpc::serve(listener, routes, Drain::new(), None));
        worker
    }

    pub(super) fn sit(&self, registry: &InMemory) -> Seat {
        let load = Load { free_pages: 100, free_slots: 8, ..Load::default() };
        let record = WorkerRecord { incarnation: self.incarnation(), ..self.record.clone() };
        registry.seat(record, load).unwrap()
    }

    fn incarnation(&self) -> Bytes {
        format!("{}-{}", self.name, self.starts.lock().unwrap()).into_bytes().into()
    }

    /// Whether a call comes through, and means this start.
    fn take(&self, incarnation: &Bytes) -> Result<(), Status> {
        if self.ill() == Ill::Unreachable {
            return Err(Status::unavailable("tcp connect error"));
        }
        if *incarnation != self.incarnation() {
            return Err(Fault::new(ErrorReason::StaleIncarnation, "another start").to_status());
        }
        Ok(())
    }

    /// As [`Self::take`], for calls that use room.
    fn take_run(&self, incarnation: &Bytes) -> Result<(), Status> {
        self.take(incarnation)?;
        if self.ill() == Ill::DiesReserved { Err(Status::unavailable("broken pipe")) } else { Ok(()) }
    }

    fn ill(&self) -> Ill {
        *self.ill.lock().unwrap()
    }

    /// `events` as this worker's illness lets them out; `held` lives as long as the stream.
    fn spoilt<T: Send + 'static>(&self, events: Vec<T>, held: Held) -> Events<T> {
        let events = stream::iter(events.into_iter().map(Ok)).then(|event| async {
            tokio::time::sleep(Duration::from_millis(2)).await;
            event
        });
        let fails = |status: Status| stream::iter([Err(status)]);
        let events: Events<T> = match self.ill() {
            Ill::Not | Ill::Slow(_) | Ill::Unreachable | Ill::DiesReserved => Box::pin(events),
            Ill::Silent(after) => Box::pin(events.take(after)),
            Ill::Hangs(after) => Box::pin(events.take(after).chain(stream::pending())),
            Ill::Breaks(after) => Box::pin(events.take(after).chain(fails(Status::unknown("h2: reset")))),
            Ill::Says(after, reason) => {
                let fault = Fault::new(reason, "so it is");
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

impl Worker {
    /// What decode says of a sequence whose first token is drawn.
    fn answer(&self, mut sequence: Sequence, prompt: u32, most: u32, end_tokens: &[u32]) -> Vec<RunResponse> {
        use run_response::Event;
        let script = self.shared.script.lock().unwrap();
        let mut ids: Vec<u32> = (1..most).map(|_| script.draw(&mut sequence)).collect();
        let end = ids.iter().position(|id| end_tokens.contains(id));
        ids.truncate(end.map_or(ids.len(), |last| last + 1));
        let reason = if end.is_some() { EndReason::EndToken } else { EndReason::Length };
        let window = *self.shared.window.lock().unwrap();
        let mut events = vec![Event::Committed(Committed::default())];
        for (position, step) in (prompt + 1..).step_by(window).zip(ids.chunks(window)) {
            events.push(Event::Delta(TokenDelta {
                position,
                token_ids: step.to_vec(),
                logprobs: step.iter().copied().map(logprobs).collect(),
                drafted_tokens: (window - 1) as u32,
                accepted_tokens: (step.len() - 1) as u32,
            }));
        }
        events.push(Event::Ended(Ended { reason: reason.into() }));
        events.into_iter().map(|event| RunResponse { event: Some(event) }).collect()
    }
}

#[tonic::async_trait]
impl Prefill for Worker {
    type RunStream = Events<PrefillResponse>;

    async fn run(&self, request: Request<PrefillRequest>) -> Result<Response<Self::RunStream>, Status> {
        use prefill_response::Event;
        let request = request.into_inner();
        self.take_run(&request.incarnation)?;
        self.shared.prefilled.lock().unwrap().push(request.clone());
        let total_tokens = request.prompt_ids.len() as u32;
        let mut sequence = Sequence::of(&request);
        let id = self.shared.script.lock().unwrap().draw(&mut sequence);
        let first = FirstToken {
            token_id: id,
            logprobs: Some(logprobs(id)),
            cached_tokens: total_tokens,
            ..FirstToken::default()
        };
        let events = [
            Event::Progress(PrefillProgress { done_tokens: total_tokens, total_tokens }),
            Event::FirstToken(first),
            Event::HandedOver(HandedOver::default()),
        ];
        let events = events.into_iter().map(|event| PrefillResponse { event: Some(event) }).collect();
        let ticket = request.ticket.unwrap_or_default().id;
        self.held.lock().unwrap().insert(ticket.clone(), (total_tokens, 0));
        let (handed, to) = (self.shared.handed.clone(), ticket.clone());
        let events = self.spoilt(events, Held { worker: self.clone(), ticket }).inspect(move |event| {
            if let Ok(PrefillResponse { event: Some(Event::HandedOver(_)) }) = event {
                handed.send_modify(|tickets| {
                    tickets.insert(to.clone(), sequence.clone());
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
        self.take(&request.incarnation)?;
        if let Ill::Slow(millis) = self.ill() {
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
        let id = format!("{} {}", request.request_id, request.attempt);
        self.held.lock().unwrap().insert(id.clone(), (request.prompt_tokens, request.max_tokens));
        Ok(Response::new(ReserveResponse { ticket: Some(Ticket { id, ..Ticket::default() }) }))
    }

    async fn run(&self, request: Request<RunRequest>) -> Result<Response<Self::RunStream>, Status> {
        let RunRequest { ticket_id: ticket, incarnation, sampling, end_token_ids, .. } = request.into_inner();
        self.take_run(&incarnation)?;
        let Some((prompt, most)) = self.held.lock().unwrap().get(&ticket).copied() else {
            return Err(Fault::new(ErrorReason::UnknownTicket, "no such ticket").to_status());
        };
        assert_eq!(sampling.unwrap().max_tokens, Some(most));
        let mut handed = self.shared.handed.subscribe();
        let worker = self.clone();
        let held = Held { worker: self.clone(), ticket: ticket.clone() };
        let events = async move {
            let tickets = handed.wait_for(|tickets| tickets.contains_key(&ticket)).await.unwrap();
            let sequence = tickets[&ticket].clone();
            drop(tickets);
            assert_eq!(sequence.tokens(), prompt + 1, "the state is where the room was reserved for");
            let events = worker.answer(sequence, prompt, most, &end_token_ids);
            worker.spoilt(events, held)
        };
        Ok(Response::new(Box::pin(stream::once(events).flatten())))
    }

    async fn release(&self, request: Request<ReleaseRequest>) -> Result<Response<ReleaseResponse>, Status> {
        self.held.lock().unwrap().remove(&request.into_inner().ticket_id);
        Ok(Response::new(ReleaseResponse {}))
    }
}
