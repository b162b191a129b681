//! Everything around a worker's own service.

use std::time::Duration;

use discovery::{Announce, Etcd, Remote};
use net::{Listener, Network, Traffic};
use process::{
    Drain, Random,
    grpc::{self, HealthReporter, ServingStatus},
    http::{self, Ready},
};
use proto::v1::{Load, WorkerRecord, worker_server::WorkerServer};
use telemetry::Meters;
use tokio::sync::watch;
use tonic::service::Routes;

use crate::{CacheLog, Flags, Incarnation, WorkerService};

/// How long after saying "I am draining" a worker goes on accepting calls: requests already placed on it arrive.
const PLACED_ALREADY: Duration = Duration::from_millis(300);

/// How long what HTTP has begun to answer gets at the end.
const LAST_BYTES: Duration = Duration::from_millis(300);

/// Why a worker ended, other than by being asked to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The gRPC server failed.
    #[error("grpc server: {0}")]
    Grpc(#[from] tonic::transport::Error),
    /// The HTTP server failed.
    #[error("http server: {0}")]
    Http(#[from] std::io::Error),
    /// The registry refused this worker.
    #[error(transparent)]
    Registry(#[from] discovery::Error),
    /// The reflection descriptors are broken.
    #[error("reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// A worker that is bound and observed, but has no service yet.
#[derive(Debug)]
pub struct Shell {
    /// Made at this start.
    pub incarnation: Incarnation,
    /// Where gRPC is reached.
    pub grpc_address: String,
    /// Where HTTP is reached.
    pub http_address: String,
    /// For the role's own metrics.
    pub meters: Meters,
    /// When to stop taking work.
    pub drain: Drain,
    /// How others are reached.
    pub network: Network,
    /// Where ids and secrets come from.
    pub random: Random,
    grpc: Listener,
    http: Listener,
    ready: Ready,
}

impl Shell {
    /// Binds gRPC and HTTP, so that a wrong address is an error before anything is loaded.
    pub async fn bind(
        network: Network,
        flags: &Flags,
        drain: Drain,
        random: Random,
    ) -> Result<Self, process::net::BindError> {
        let (grpc, bound) = process::net::bind(&network, Traffic::Calls, "grpc", &flags.grpc).await?;
        let grpc_address = flags.reached_at("grpc", bound)?;
        let (http, bound) = process::net::bind(&network, Traffic::Public, "http", &flags.http).await?;
        let http_address = flags.reached_at("http", bound)?;
        Ok(Self {
            incarnation: Incarnation::new(&random),
            grpc_address,
            http_address,
            meters: Meters::new(),
            drain,
            network,
            random,
            grpc,
            http,
            ready: Ready::new(),
        })
    }

    /// Serves HTTP from now on (not ready), while the worker loads and compiles.
    pub fn serve_http(self) -> Serving {
        let routes = http::routes(self.meters.clone(), self.ready.clone());
        // Probes and scrapers are answered to the end: a worker that drains is alive, and whoever believes otherwise kills it.
        let doors = Drain::new();
        let http = tokio::spawn(http::serve(self.http, routes, doors.clone()));
        Serving {
            incarnation: self.incarnation,
            grpc_address: self.grpc_address,
            http_address: self.http_address,
            meters: self.meters,
            drain: self.drain,
            network: self.network,
            random: self.random,
            grpc: self.grpc,
            ready: self.ready,
            doors,
            http,
        }
    }
}

/// A worker whose HTTP is up, and which loads.
#[derive(Debug)]
pub struct Serving {
    /// Made at this start.
    pub incarnation: Incarnation,
    /// Where gRPC is reached.
    pub grpc_address: String,
    /// Where HTTP is reached.
    pub http_address: String,
    /// For the role's own metrics.
    pub meters: Meters,
    /// When to stop taking work.
    pub drain: Drain,
    /// How others are reached.
    pub network: Network,
    /// Where ids and secrets come from.
    pub random: Random,
    grpc: Listener,
    ready: Ready,
    /// Closes HTTP.
    doors: Drain,
    http: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Serving {
    /// The worker is loaded: serves `services` (the role's own, with health and reflection: see [`grpc::base`]), joins
    /// the membership, and runs until it is drained. `cache`: what it can resume from, where it has
    /// a cache; `names` are what health answers for besides the whole server.
    pub async fn run(
        self,
        flags: &Flags,
        record: WorkerRecord,
        load: watch::Receiver<Load>,
        cache: Option<CacheLog>,
        names: &[&str],
        services: (HealthReporter, Routes),
    ) -> Result<(), Error> {
        let (health, routes) = services;
        let drain = self.drain.clone();
        let (said, load) = with_draining(load, drain.clone());
        let service =
            WorkerService::new(record.clone(), self.incarnation, load.clone(), cache, drain.clone());
        let routes = routes.add_service(WorkerServer::new(service));
        for name in ["", "tandem.v1.Worker"].iter().chain(names) {
            health.set_service_status(name, ServingStatus::Serving).await;
        }
        let announced: Box<dyn Announce> = match Etcd::new(&flags.etcd, self.random, &self.meters)? {
            Some(etcd) => Box::new(etcd),
            None => Box::new(Remote::new(&flags.router, self.network)?),
        };
        // The server outlives the announcement by a moment: what was placed here before the router knew still arrives.
        let closing = Drain::new();
        let server = tokio::spawn(grpc::serve(self.grpc, routes, closing.clone(), None));
        self.ready.set(true);
        tracing::info!(
            worker = record.name,
            grpc = record.grpc_address,
            http = record.http_address,
            data = (!record.data_endpoint.is_empty()).then_some(&record.data_endpoint),
            "ready"
        );
        tokio::select! {
            refused = announced.announce(record, load) => return Err(refused.into()),
            () = async { drain.begun().await; tokio::time::sleep(PLACED_ALREADY).await } => {}
        }
        self.ready.set(false);
        for name in ["", "tandem.v1.Worker"].iter().chain(names) {
            health.set_service_status(name, ServingStatus::NotServing).await;
        }
        closing.begin();
        let whole = closing.finish(flags.grace()).await;
        drain.finish(if whole { Duration::from_secs(1) } else { Duration::ZERO }).await;
        said.abort();
        if let Ok(served) = server.await {
            served?;
        }
        self.doors.begin();
        self.doors.finish(LAST_BYTES).await;
        if let Ok(served) = self.http.await {
            served?;
        }
        Ok(())
    }
}

/// The engine's load, with `draining` set from the moment the drain begins.
fn with_draining(
    mut load: watch::Receiver<Load>,
    drain: Drain,
) -> (tokio::task::JoinHandle<()>, watch::Receiver<Load>) {
    let (said, heard) = watch::channel(*load.borrow_and_update());
    let task = tokio::spawn(async move {
        loop {
            let draining = drain.has_begun();
            said.send_replace(Load { draining, ..*load.borrow_and_update() });
            tokio::select! {
                changed = load.changed() => if changed.is_err() { return },
                () = drain.begun(), if !draining => {}
            }
        }
    });
    (task, heard)
}
