//! Workers that serve what every worker serves, and nothing else.

use std::{net::SocketAddr, time::Duration};

use discovery::{Announce, Error};
use net::{Network, Traffic};
use process::{Drain, Random};
use proto::v1::{Fingerprint, Layout, Load, Role, WorkerRecord, worker_server::WorkerServer};
use tokio::{
    sync::{oneshot, watch},
    time::timeout,
};
use tonic::service::Routes;
use worker::{Incarnation, WorkerService};

/// A worker on a runtime of its own: it dies when that is dropped.
pub(crate) struct Worker {
    pub(crate) incarnation: Vec<u8>,
    load: watch::Sender<Load>,
    leave: Option<oneshot::Sender<()>>,
    ended: oneshot::Receiver<Option<Error>>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Worker {
    pub(crate) fn start(name: &str, role: Role, load: Load, announce: Box<dyn Announce>) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (loads, heard) = watch::channel(load);
        let (leave, leaves) = oneshot::channel();
        let (ends, ended) = oneshot::channel();
        let incarnation = Incarnation::new(&Random::system());
        let bytes = incarnation.bytes().to_vec();
        let name = name.to_owned();
        runtime.spawn(async move {
            let (listener, address) = bound(&net::system()).await;
            let record = record(&name, role, &incarnation, address);
            let service = WorkerService::new(record.clone(), incarnation, heard.clone(), None, Drain::new());
            let routes = Routes::new(WorkerServer::new(service));
            let server = tokio::spawn(process::grpc::serve(listener, routes, Drain::new(), None));
            let end = tokio::select! {
                refused = announce.announce(record, heard) => Some(refused),
                _ = leaves => None,
            };
            let _ = ends.send(end);
            server.await
        });
        Self { incarnation: bytes, load: loads, leave: Some(leave), ended, runtime: Some(runtime) }
    }

    pub(crate) fn says(&self, load: Load) {
        self.load.send_replace(load);
    }

    /// Announces itself no more, but lives on and serves what it has.
    pub(crate) fn leaves(&mut self) {
        self.leave.take().unwrap().send(()).unwrap();
    }

    /// Why it was refused.
    pub(crate) async fn refused(&mut self) -> String {
        let ended = timeout(Duration::from_secs(20), &mut self.ended).await;
        ended.expect("refused in time").unwrap().unwrap().to_string()
    }

    pub(crate) fn dies(mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn bound(network: &Network) -> (net::Listener, SocketAddr) {
    process::net::bind(network, Traffic::Calls, "grpc", "127.0.0.1:0").await.unwrap()
}

pub(crate) fn record(name: &str, role: Role, incarnation: &Incarnation, address: SocketAddr) -> WorkerRecord {
    WorkerRecord {
        name: name.into(),
        role: role.into(),
        incarnation: incarnation.bytes(),
        grpc_address: address.to_string(),
        fingerprint: Some(Fingerprint {
            model: "m".into(),
            weights_digest: vec![0, 255].into(),
            ..Fingerprint::default()
        }),
        layout: Some(Layout { heads: 4, ..Layout::default() }),
        hash_unit_tokens: 512,
        ..WorkerRecord::default()
    }
}
