use std::pin::Pin;
use std::sync::Arc;

use engine::EngineHandle;
use futures::Stream;
use kvxfer::{EndKey, Layout, PublicEnd, Secret, TicketId};
use process::{Drain, Random};
use programs::sampling::Sampling;
use proto::status::Fault;
use proto::v1::decode_server::Decode;
use proto::v1::{
    Fingerprint, ReleaseRequest, ReleaseResponse, ReserveRequest, ReserveResponse, RunRequest, RunResponse,
    Ticket,
};
use tokio::time::Instant;
use tonic::{Request, Response, Status};
use tracing::Instrument;
use worker::Incarnation;

use crate::book::Book;
use crate::error::{Error, status};
use crate::ledger::Secrets;
use crate::run::{Asked, answer};

/// `tandem.v1.Decode`.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) facts: Arc<Facts>,
    pub(crate) engine: EngineHandle,
    pub(crate) book: Book,
    pub(crate) drain: Drain,
    /// Of ticket ids and secrets.
    pub(crate) random: Random,
    pub(crate) key: EndKey,
}

/// What stays the same for the life of the process.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) incarnation: Incarnation,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) layout: Layout,
    pub(crate) context: u32,
    pub(crate) grpc_address: String,
    pub(crate) data_endpoint: String,
    pub(crate) lease_millis: u64,
}

impl Service {
    fn check_incarnation(&self, issued_to: &[u8]) -> Result<(), Error> {
        self.facts.incarnation.check(issued_to).map_err(Error::Message)
    }

    /// Tokens to reserve for, if the request can be served here.
    fn check_reserve(&self, message: &ReserveRequest) -> Result<u32, Error> {
        self.check_incarnation(&message.incarnation)?;
        if self.drain.has_begun() {
            return Err(Error::Draining);
        }
        let invalid = |field, why| Err(Error::Message(Fault::invalid(field, why)));
        let Some(theirs) = &message.fingerprint else { return invalid("fingerprint", "is missing") };
        if let Some(field) = host::fingerprint_difference(&self.facts.fingerprint, theirs) {
            return Err(Error::Mismatch { field });
        }
        if message.prompt_tokens == 0 {
            return invalid("prompt_tokens", "must be at least 1");
        }
        if message.max_tokens == 0 {
            return invalid("max_tokens", "must be at least 1");
        }
        let tokens = u64::from(message.prompt_tokens) + u64::from(message.max_tokens);
        let context = self.facts.context;
        u32::try_from(tokens)
            .ok()
            .filter(|tokens| *tokens <= context)
            .ok_or(Error::Engine(engine::Error::TooLong { field: "max_tokens", tokens, context }))
    }

    async fn reserved(
        &self,
        message: ReserveRequest,
        deadline: Option<std::time::Instant>,
    ) -> Result<Ticket, Error> {
        let tokens = self.check_reserve(&message)?;
        let (id, ticket) = (self.random.bytes(), Secret(self.random.bytes()));
        let transfer = self.transfer_secret(&ticket, &message.sender_key)?;
        let room = self.engine.reserve_by(tokens, deadline).await?;
        let secrets = Secrets { ticket, transfer };
        let ticket = Ticket {
            id: TicketId(id).to_string(),
            address: self.facts.grpc_address.clone(),
            data_endpoint: self.facts.data_endpoint.clone(),
            incarnation: self.facts.incarnation.bytes(),
            secret: secrets.ticket.0.to_vec().into(),
            lease_millis: self.facts.lease_millis,
            capacity_tokens: tokens,
            state_pos: message.prompt_tokens,
            layout: Some(host::layout_message(&self.facts.layout)),
            fingerprint: Some(self.facts.fingerprint.clone()),
            receiver_key: self.key.public().bytes().to_vec().into(),
        };
        self.book.reserve(TicketId(id), secrets, message.prompt_tokens, room);
        Ok(ticket)
    }

    /// What the worker that has `sender_key` must prove to know.
    fn transfer_secret(&self, ticket: &Secret, sender_key: &[u8]) -> Result<Secret, Error> {
        let invalid = |why: String| Error::Message(Fault::invalid("sender_key", why));
        let sender = PublicEnd::try_from(sender_key).map_err(|bad| invalid(bad.to_string()))?;
        self.key.bind(ticket, &sender).map_err(|bad| invalid(bad.to_string()))
    }

    fn asked(
        &self,
        message: RunRequest,
        deadline: Option<Instant>,
    ) -> Result<(TicketId, Secret, Asked), Error> {
        self.check_incarnation(&message.incarnation)?;
        let invalid = |field, why: String| Error::Message(Fault::invalid(field, why));
        let id: TicketId = message.ticket_id.parse().map_err(|_| Error::UnknownTicket)?;
        let secret = Secret::try_from(&message.ticket_secret[..])
            .map_err(|bad| invalid("ticket_secret", bad.to_string()))?;
        let sampling = message.sampling.ok_or_else(|| invalid("sampling", "is missing".to_owned()))?;
        let sampling: Sampling = proto::sampling::asked(sampling)
            .checked(self.facts.layout.vocabulary, 0)
            .map_err(|refused| invalid(refused.field, refused.why))?;
        let request_id = message.request_id;
        Ok((id, secret, Asked { request_id, sampling, end_tokens: message.end_token_ids, deadline }))
    }
}

#[tonic::async_trait]
impl Decode for Service {
    type RunStream = Pin<Box<dyn Stream<Item = Result<RunResponse, Status>> + Send>>;

    async fn reserve(&self, request: Request<ReserveRequest>) -> Result<Response<ReserveResponse>, Status> {
        let deadline = host::deadline(request.metadata());
        let message = request.get_ref();
        let span = host::span(request.metadata(), "Decode.Reserve", &message.request_id, message.attempt);
        let ticket = self.reserved(request.into_inner(), deadline).instrument(span).await;
        let ticket = ticket.map_err(|error| status(&error))?;
        Ok(Response::new(ReserveResponse { ticket: Some(ticket) }))
    }

    async fn run(&self, request: Request<RunRequest>) -> Result<Response<Self::RunStream>, Status> {
        let deadline = host::deadline(request.metadata()).map(Instant::from_std);
        let message = request.get_ref();
        let span = host::span(request.metadata(), "Decode.Run", &message.request_id, message.attempt);
        let attached = self.asked(request.into_inner(), deadline).and_then(|(id, secret, asked)| {
            let attached = self.book.attach(id, &secret)?;
            Ok((attached, asked))
        });
        let (attached, asked) = attached.map_err(|error| status(&error))?;
        Ok(Response::new(Box::pin(answer(attached, asked, span))))
    }

    async fn release(&self, request: Request<ReleaseRequest>) -> Result<Response<ReleaseResponse>, Status> {
        let message = request.into_inner();
        self.check_incarnation(&message.incarnation).map_err(|error| status(&error))?;
        // no such ticket: released before, or never issued, and nothing is held either way
        if let Ok(id) = message.ticket_id.parse() {
            self.book.release(&id);
        }
        Ok(Response::new(ReleaseResponse {}))
    }
}
