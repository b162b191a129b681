//! The journey of a request, in the order in which it happens.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use discovery::View;
use net::Network;
use process::{Drain, Random};
use telemetry::Meters;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{Instrument, Span, info_span};

use crate::admission::{Arrival, Gate, Limits};
use crate::channels::Channels;
use crate::clients::{Client, Clients};
use crate::dispatch::Dispatch;
use crate::error::Error;
use crate::fleet::Fleet;
use crate::metrics::Metrics;
use crate::model::Model;
use crate::recovery::Bounds;
use crate::relay::TokenStream;
use crate::request::{Asked, Request};
use crate::scaling::{Demand, Peers, Scaling};
use crate::status::Journal;

/// Texts longer than this are tokenized beside the runtime, in bytes.
const LONG_TEXT: usize = 16 << 10;

/// How a router behaves.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub limits: Limits,
    /// Longest life of a request, whatever its client allows.
    pub timeout: Duration,
    /// How much is done for a request that workers fail.
    pub bounds: Bounds,
    /// Workers come when requests ask for them.
    pub on_demand: bool,
    /// After which a client's gRPC connection takes no more calls, so that its client looks up anew which routers there are.
    pub connection_age: Duration,
}

/// What a router is given from outside.
#[derive(Debug)]
pub struct Deps {
    /// How workers are reached.
    pub network: Network,
    /// The registry's view of the fleet.
    pub members: watch::Receiver<View>,
    pub meters: Meters,
    pub drain: Drain,
    /// Of ids, and of the seeds of requests that name none.
    pub random: Random,
    /// Who may ask.
    pub clients: Clients,
    /// Where all routers of the cluster answer each other (host:port each), this one among them; empty: it is the only one.
    pub peers: Vec<String>,
}

/// The router without its doors. Clones are the same router.
#[derive(Clone, Debug)]
pub struct Router {
    pub(crate) model: Arc<Model>,
    pub(crate) fleet: Fleet,
    pub(crate) gate: Gate,
    pub(crate) metrics: Metrics,
    pub(crate) meters: Meters,
    pub(crate) drain: Drain,
    pub(crate) demand: Demand,
    pub(crate) scaling: Scaling,
    pub(crate) peers: Option<Peers>,
    /// Which router this is.
    pub(crate) own: Bytes,
    pub(crate) journal: Journal,
    pub(crate) built: Instant,
    dispatch: Dispatch,
    timeout: Duration,
    pub(crate) connection_age: Duration,
    pub(crate) random: Random,
    pub(crate) clients: Clients,
}

impl Router {
    /// A router of `model`; nothing is bound or connected yet.
    pub fn build(model: Model, config: Config, deps: Deps) -> Self {
        let metrics = Metrics::register(&deps.meters);
        let own = Bytes::copy_from_slice(&deps.random.bytes::<16>());
        let peers =
            (!deps.peers.is_empty()).then(|| Peers::new(deps.peers, deps.network.clone(), own.clone()));
        let (demand, journal) = (Demand::default(), Journal::default());
        let scaling = Scaling::new(deps.members.clone(), demand.clone());
        let channels = Channels::new(deps.network);
        let fleet = Fleet::new(model.name.clone(), deps.members, channels, config.on_demand);
        let dispatch = Dispatch::new(fleet.clone(), metrics.clone(), demand.clone(), deps.drain.clone());
        Self {
            model: Arc::new(model),
            gate: Gate::new(config.limits, config.bounds, metrics.clone(), journal.clone()),
            fleet,
            metrics,
            meters: deps.meters,
            drain: deps.drain,
            demand,
            scaling,
            peers,
            own,
            journal,
            built: Instant::now(),
            dispatch,
            timeout: config.timeout,
            connection_age: config.connection_age,
            random: deps.random,
            clients: deps.clients,
        }
    }

    /// A request of `client` has come, which waits at most `timeout`.
    pub(crate) fn arrival(&self, span: Span, client: Client, timeout: Option<Duration>) -> Arrival {
        let at = Instant::now();
        let allowed = timeout.map_or(self.timeout, |asked| asked.min(self.timeout));
        Arrival { at, deadline: at + allowed, span, client }
    }

    /// Checks, admits, places and starts a request. What it returns is the answer, and owns all that serves it.
    pub async fn generate(&self, asked: Asked, arrival: Arrival) -> Result<TokenStream, Error> {
        let span = arrival.span.clone();
        self.start(asked, arrival).instrument(span).await
    }

    /// Longest prompt and output together, in tokens.
    pub(crate) fn context(&self) -> u32 {
        self.fleet.context(self.model.context)
    }

    async fn start(&self, asked: Asked, arrival: Arrival) -> Result<TokenStream, Error> {
        let refused = |error: Error| {
            self.metrics.refused(&error);
            error
        };
        let tenant = arrival.client.tenant(asked.tenant).map_err(refused)?;
        let request = self.check(Asked { tenant, ..asked }).await.map_err(refused)?;
        let tokens = request.prompt.len() as u64 + u64::from(request.max_tokens);
        let _wanting = self.demand.of(request.prompt_tokens());
        let charge = self.clients.charge(&arrival.client, tokens).map_err(refused)?;
        let admitting = self.gate.admit(request, arrival, charge).instrument(info_span!("admit"));
        let admitted = admitting.await.map_err(refused)?;
        let decoding = self.dispatch.start(admitted).await?;
        Ok(TokenStream::new(decoding, self.dispatch.clone(), self.model.tokenizer.clone()))
    }

    async fn check(&self, asked: Asked) -> Result<Request, Error> {
        let (model, context, random) = (Arc::clone(&self.model), self.context(), self.random.clone());
        let long = asked.prompt.bytes() > LONG_TEXT;
        let check = move || Request::check(asked, &model, context, &random, SystemTime::now());
        if !long {
            return check();
        }
        tokio::task::spawn_blocking(check)
            .await
            .map_err(|error| Error::Internal(format!("the prompt was not tokenized: {error}")))?
    }
}

#[cfg(test)]
mod tests;
