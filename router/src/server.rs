//! From a built router to an open one, and down again.

use std::time::Duration;

use discovery::MembershipService;
use net::Listener;
use process::Drain;
use process::grpc::{self, HealthReporter, ServingStatus};
use process::http::{self, Ready};
use proto::MESSAGE_LIMIT;
use proto::externalscaler::external_scaler_server::ExternalScalerServer;
use proto::v1::Role;
use proto::v1::inference_server::InferenceServer;
use proto::v1::membership_server::MembershipServer;
use proto::v1::peer_server::PeerServer;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::service::Routes;

use crate::ingress;
use crate::joining::{self, Joining};
use crate::journey::Router;
use crate::scaling::{External, PeerService};
use crate::status;

/// After the last request: time for its last bytes to leave.
const LAST_BYTES: Duration = Duration::from_millis(300);
/// How often an ending router looks whether the last request is done.
const DRAIN_POLL: Duration = Duration::from_millis(20);

/// Where a router is reached; bound by the caller.
#[derive(Debug)]
pub struct Listeners {
    pub grpc: Listener,
    pub http: Listener,
    /// Where workers join; with clients, if nowhere else.
    pub members: Option<Listener>,
    /// Where operators see the status; at `http`, if nowhere else and if anyone may ask there.
    pub status: Option<Listener>,
}

/// Why serving ended, other than by a drain.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("grpc server: {0}")]
    Grpc(#[from] tonic::transport::Error),
    #[error("http server: {0}")]
    Http(#[from] std::io::Error),
    #[error("reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    #[error("a server task ended abnormally: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl Router {
    /// Serves clients, and workers where they join here, until the drain begins; then lets running requests end, at most `grace`.
    pub async fn serve(
        self,
        listeners: Listeners,
        joining: impl Into<Joining>,
        grace: Duration,
    ) -> Result<(), ServeError> {
        let (health, routes) = grpc::base(proto::DESCRIPTORS)?;
        let ready = Ready::new();
        let mut telling = JoinSet::new();
        let membership = match joining.into() {
            Joining::Here(membership) => Some(MembershipServer::new(membership)),
            Joining::Etcd(following) => {
                telling.spawn(joining::tell(following, self.fleet.view(), health.clone(), ready.clone()));
                None
            }
        };
        let inference = InferenceServer::new(ingress::Grpc::new(self.clone()))
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT);
        let joins = membership.is_some();
        let (clients, members) = where_joined(routes, listeners.members, membership);
        let peer = PeerServer::new(PeerService::new(self.demand.clone(), self.own.clone()));
        let scaler = ExternalScalerServer::new(External::new(self.scaling.clone()));
        let clients = clients.add_service(inference).add_service(scaler).add_service(peer);
        let clients = (listeners.grpc, clients);
        telling.spawn(self.scaling.clone().keep(self.peers.clone()));
        let pages = http::routes(self.meters.clone(), ready.clone()).merge(ingress::openai(self.clone()));
        // The doors close after the last request: until then, requests are refused with a reason. Clients by gRPC are told to go at
        // once, over the connections that they have, for they hold on to those: who knows several routers would come back to this
        // one with every other request, and be refused until it gives up.
        let (doors, parting) = (Drain::new(), Drain::new());
        let seen = status::routes(self.clone(), ready.clone(), doors.clone());
        let (pages, seen) = match listeners.status {
            Some(listener) => (pages, Some((listener, seen))),
            None if self.clients.are_known() => (pages, None),
            None => (pages.merge(seen), None),
        };
        let clients = grpc::serve(clients.0, clients.1, parting.clone(), Some(self.connection_age));
        let members = serve_members(members, doors.clone());
        let mut grpc = tokio::spawn(async move { tokio::try_join!(clients, members).map(drop) });
        let mut http = tokio::spawn(serve_http((listeners.http, pages), seen, doors.clone()));
        let drain = self.drain.clone();
        tokio::select! {
            served = &mut grpc => served??,
            served = &mut http => served??,
            () = self.clone().watch(&health, &ready, joins) => {}
            () = drain.begun() => {}
        }
        self.gate.close();
        ready.set(false);
        self.say(&health, ServingStatus::NotServing).await;
        parting.begin();
        self.idle(grace).await;
        doors.begin();
        tokio::join!(doors.finish(LAST_BYTES), parting.finish(LAST_BYTES));
        drain.begin();
        drain.finish(LAST_BYTES).await;
        if !grpc.is_finished() {
            grpc.await??;
        }
        if !http.is_finished() {
            http.await??;
        }
        Ok(())
    }

    /// Says whether requests can be served, whenever that changes.
    async fn watch(mut self, health: &HealthReporter, ready: &Ready, joins: bool) {
        if joins {
            health.set_service_status("tandem.v1.Membership", ServingStatus::Serving).await;
        }
        self.say(health, ServingStatus::NotServing).await;
        loop {
            self.metrics.workers(self.fleet.count(Role::Prefill), self.fleet.count(Role::Decode));
            let serves = self.fleet.serves();
            if serves != ready.get() {
                tracing::info!(model = %self.model.name, serves, "readiness changed");
                ready.set(serves);
                let status = if serves { ServingStatus::Serving } else { ServingStatus::NotServing };
                self.say(health, status).await;
            }
            if !self.fleet.changed().await {
                // The registry is gone: nothing changes any more.
                std::future::pending::<()>().await;
            }
        }
    }

    async fn say(&self, health: &HealthReporter, status: ServingStatus) {
        for name in ["", "tandem.v1.Inference", &self.model.name] {
            health.set_service_status(name, status).await;
        }
    }

    /// Waits for the last request, at most `grace`.
    async fn idle(&self, grace: Duration) {
        let held = || self.metrics.permits_held.get();
        let last = async {
            while held() > 0 {
                tokio::time::sleep(DRAIN_POLL).await;
            }
        };
        if timeout(grace, last).await.is_err() {
            tracing::warn!(requests = held(), "requests were cut off at the end of the grace period");
        }
    }
}

/// Serves clients, and operators where they have an address of their own.
async fn serve_http(clients: Pages, operators: Option<Pages>, doors: Drain) -> std::io::Result<()> {
    let operators = async {
        match operators {
            Some((listener, pages)) => http::serve(listener, pages, doors.clone()).await,
            None => Ok(()),
        }
    };
    tokio::try_join!(http::serve(clients.0, clients.1, doors.clone()), operators)?;
    Ok(())
}

type Pages = (Listener, axum::Router);
type Served = (Listener, Routes);

/// What clients reach, with `membership` where it has no listener of its own, and what workers reach, where it has.
fn where_joined(
    routes: Routes,
    listener: Option<Listener>,
    membership: Option<MembershipServer<MembershipService>>,
) -> (Routes, Option<Served>) {
    match (listener, membership) {
        (Some(listener), Some(membership)) => {
            (routes.clone(), Some((listener, routes.add_service(membership))))
        }
        (None, Some(membership)) => (routes.add_service(membership), None),
        (_, None) => (routes, None),
    }
}

/// Serves workers where they join at an address of their own.
async fn serve_members(members: Option<Served>, doors: Drain) -> Result<(), tonic::transport::Error> {
    match members {
        Some((listener, routes)) => grpc::serve(listener, routes, doors, None).await,
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
