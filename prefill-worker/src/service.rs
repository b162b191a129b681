use std::pin::Pin;
use std::sync::Arc;

use engine::{EngineHandle, PrefillJob};
use futures::Stream;
use kvxfer::{EndKey, Layout, PublicEnd, Secret, Ticket};
use process::Drain;
use programs::sampling::Sampling;
use proto::status::Fault;
use proto::v1::prefill_server::Prefill;
use proto::v1::{self, Fingerprint, PrefillRequest, PrefillResponse};
use tonic::{Request, Response, Status};
use tracing::Instrument;
use worker::Incarnation;

use crate::error::{Error, status};
use crate::handover::{Drawn, Handover, Means, events};

/// `tandem.v1.Prefill`.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) facts: Arc<Facts>,
    pub(crate) engine: EngineHandle,
    pub(crate) means: Means,
    pub(crate) drain: Drain,
    /// Tickets are bound to it.
    pub(crate) key: EndKey,
}

/// What stays the same for the life of the process.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) incarnation: Incarnation,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) layout: Layout,
}

fn invalid(field: &str, why: impl Into<String>) -> Error {
    Error::Message(Fault::invalid(field, why))
}

impl Service {
    /// Checks a request against what this worker is, and queues its prompt.
    fn begin(
        &self,
        message: PrefillRequest,
        deadline: Option<std::time::Instant>,
    ) -> Result<Handover, Error> {
        self.facts.incarnation.check(&message.incarnation).map_err(Error::Message)?;
        if self.drain.has_begun() {
            return Err(Error::Draining);
        }
        let ticket = self.ticket(message.ticket, message.prompt_ids.len())?;
        let sampling = message.sampling.ok_or_else(|| invalid("sampling", "is missing"))?;
        if sampling.seed.is_none() {
            return Err(invalid("sampling.seed", "is missing: both workers must draw with the same"));
        }
        let sampling: Sampling = proto::sampling::asked(sampling)
            .checked(self.facts.layout.vocabulary, 0)
            .map_err(|refused| invalid(refused.field, refused.why))?;
        if message.output_tokens > 0 && message.output_tokens as usize >= message.prompt_ids.len() {
            return Err(invalid("output_tokens", "leaves no prompt"));
        }
        let namespace = proto::namespace::of(&message.tenant, &message.cache_salt, &self.facts.fingerprint);
        let job = PrefillJob {
            request_id: message.request_id,
            namespace,
            prompt: message.prompt_ids,
            output_tokens: message.output_tokens,
            sampling,
            priority: message.priority,
            deadline,
        };
        let wants_logprobs = job.sampling.logprobs.is_some();
        let drawn = Drawn::of(&job);
        let stream = self.engine.prefill(job)?;
        Ok(Handover { stream, ticket, drawn, wants_logprobs })
    }

    /// The ticket, if this worker's state is what its owner can use.
    fn ticket(&self, message: Option<v1::Ticket>, prompt: usize) -> Result<Ticket, Error> {
        let message = message.ok_or_else(|| invalid("ticket", "is missing"))?;
        let theirs = message.fingerprint.ok_or_else(|| invalid("ticket.fingerprint", "is missing"))?;
        if let Some(field) = host::fingerprint_difference(&self.facts.fingerprint, &theirs) {
            return Err(Error::Mismatch { field: field.to_owned(), values: None });
        }
        let layout = message.layout.ok_or_else(|| invalid("ticket.layout", "is missing"))?;
        if let Some(difference) = self.facts.layout.first_difference(&host::layout(&layout)) {
            let field = format!("layout.{}", difference.field);
            return Err(Error::Mismatch { field, values: Some(difference.to_string()) });
        }
        if message.state_pos as usize != prompt {
            let why = format!("is {}, the prompt has {prompt} tokens", message.state_pos);
            return Err(invalid("ticket.state_pos", why));
        }
        let bad = |field: &'static str| move |bad: kvxfer::BadLength| invalid(field, bad.to_string());
        let secret = Secret::try_from(&message.secret[..]).map_err(bad("ticket.secret"))?;
        let receiver = PublicEnd::try_from(&message.receiver_key[..]).map_err(bad("ticket.receiver_key"))?;
        let bound = self.key.bind(&secret, &receiver);
        Ok(Ticket {
            id: message
                .id
                .parse()
                .map_err(|bad: kvxfer::BadTicketId| invalid("ticket.id", bad.to_string()))?,
            endpoint: message.data_endpoint,
            secret: bound.map_err(|bad| invalid("ticket.receiver_key", bad.to_string()))?,
            incarnation: kvxfer::Incarnation::try_from(&message.incarnation[..])
                .map_err(bad("ticket.incarnation"))?,
            layout: self.facts.layout,
            state_pos: message.state_pos,
        })
    }
}

#[tonic::async_trait]
impl Prefill for Service {
    type RunStream = Pin<Box<dyn Stream<Item = Result<PrefillResponse, Status>> + Send>>;

    async fn run(&self, request: Request<PrefillRequest>) -> Result<Response<Self::RunStream>, Status> {
        let deadline = host::deadline(request.metadata());
        let message = request.get_ref();
        let span = host::span(request.metadata(), "Prefill.Run", &message.request_id, message.attempt);
        let handover = span.in_scope(|| self.begin(request.into_inner(), deadline));
        let handover = handover.map_err(|error| span.in_scope(|| status(&error)))?;
        let (running, events) = events(handover, self.means.clone());
        // a task of its own, so that a caller who leaves does not take away the time to tell the receiver
        self.drain.spawn(running.instrument(span));
        Ok(Response::new(Box::pin(events)))
    }
}
