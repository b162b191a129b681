//! The registries, each as a cluster has it.

use std::{net::SocketAddr, time::Duration};

use discovery::{
    Announce, Contact, Etcd, EtcdFlags, Following, InMemory, MembershipService, Registry, Remote, View,
};
use net::Traffic;
use process::{Drain, Random};
use proto::v1::membership_server::MembershipServer;
use telemetry::Meters;
use tokio::{
    runtime::{Builder, Runtime},
    sync::{oneshot, watch},
    time::sleep,
};
use tonic::service::Routes;

use crate::server::Server;

/// One registry, and the ways to it.
pub(crate) trait Bench {
    /// A worker's way.
    fn announce(&self) -> Box<dyn Announce>;
    /// A router's.
    fn view(&self) -> watch::Receiver<View>;
    /// Whoever keeps the members loses all it knows, and begins anew.
    async fn begins_anew(&mut self);
}

/// In the router, which has a runtime of its own, and dies with it.
pub(crate) struct Inside {
    address: SocketAddr,
    registry: InMemory,
    runtime: Option<Runtime>,
}

impl Inside {
    pub(crate) async fn new() -> Self {
        Self::at("127.0.0.1:0".to_owned()).await
    }

    async fn at(address: String) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let registry = InMemory::new();
        let membership = MembershipService::new(registry.clone(), Duration::from_secs(5));
        let (says, address_said) = oneshot::channel();
        runtime.spawn(async move {
            let (listener, bound) = loop {
                match process::net::bind(&net::system(), Traffic::Calls, "grpc", &address).await {
                    Ok(bound) => break bound,
                    // whoever had it before has not quite let go of it
                    Err(_) => sleep(Duration::from_millis(20)).await,
                }
            };
            says.send(bound).unwrap();
            let routes = Routes::new(MembershipServer::new(membership));
            process::grpc::serve(listener, routes, Drain::new(), None).await
        });
        Self { address: address_said.await.unwrap(), registry, runtime: Some(runtime) }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Bench for Inside {
    fn announce(&self) -> Box<dyn Announce> {
        Box::new(Remote::new(&self.address.to_string(), net::system()).unwrap())
    }

    fn view(&self) -> watch::Receiver<View> {
        self.registry.watch()
    }

    async fn begins_anew(&mut self) {
        let address = self.address.to_string();
        self.runtime.take().unwrap().shutdown_background();
        *self = Self::at(address).await;
    }
}

/// In an etcd server.
pub(crate) struct Outside {
    pub(crate) server: Server,
    pub(crate) flags: EtcdFlags,
    pub(crate) router: Router,
}

/// One router's end of it.
pub(crate) struct Router {
    following: Following,
    meters: Meters,
}

impl Outside {
    pub(crate) fn new() -> Self {
        let server = Server::start();
        let flags = flags(&server);
        Self { server, router: Router::of(&flags), flags }
    }
}

/// A cluster's, in this server.
pub(crate) fn flags(server: &Server) -> EtcdFlags {
    EtcdFlags { etcd: vec![server.url()], etcd_prefix: "/tandem".to_owned(), ..EtcdFlags::default() }
}

/// As one process has it.
pub(crate) fn etcd(flags: &EtcdFlags, meters: &Meters) -> Etcd {
    Etcd::new(flags, Random::system(), meters).unwrap().unwrap()
}

impl Router {
    pub(crate) fn of(flags: &EtcdFlags) -> Self {
        let meters = Meters::new();
        let following = etcd(flags, &meters).follow(net::system());
        Self { following, meters }
    }

    pub(crate) fn view(&self) -> watch::Receiver<View> {
        self.following.watch()
    }

    pub(crate) fn is_away(&self) -> bool {
        matches!(*self.following.contact().borrow(), Contact::Away { .. })
    }

    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = self.meters.text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }
}

impl Bench for Outside {
    fn announce(&self) -> Box<dyn Announce> {
        Box::new(etcd(&self.flags, &Meters::new()))
    }

    fn view(&self) -> watch::Receiver<View> {
        self.router.view()
    }

    async fn begins_anew(&mut self) {
        self.server.wipe();
    }
}
