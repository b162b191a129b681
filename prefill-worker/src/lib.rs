//! Turn a prompt into state and hand it over.
//!
//! The router calls [`Prefill`](proto::v1::prefill_server::Prefill): `Run` computes a prompt's chunks on `engine` while
//! `kvxfer` sends each one's latents and index keys to the ticket's owner, then the state and the first token, and ends with the
//! receiver's commit. The model is loaded by `host`; around it is `worker`.

mod error;
mod flags;
mod handover;
mod service;

use std::sync::Arc;

use host::Host;
use kvxfer::{EndKey, Meters, Pace, Sender};
use proto::v1::prefill_server::PrefillServer;
use proto::v1::{Role, WorkerRecord};
use proto::{DESCRIPTORS, MESSAGE_LIMIT};
use worker::Serving;

pub use flags::{CheckpointFormat, Flags};

use handover::Means;
use service::{Facts, Service};

/// What the outside gives a prefill worker.
#[derive(Debug)]
pub struct Deps {
    pub host: Host,
    /// Bound and observed; its drain ends the worker.
    pub at: Serving,
}

/// A prefill worker that is built and does not serve yet.
#[derive(Debug)]
pub struct PrefillWorker {
    flags: Flags,
    host: Host,
    at: Serving,
    service: Service,
}

/// Puts a prefill worker together.
pub fn build(flags: Flags, deps: Deps) -> PrefillWorker {
    let Deps { host, at } = deps;
    let facts = Facts {
        incarnation: at.incarnation.clone(),
        fingerprint: host.fingerprint().clone(),
        layout: *host.layout(),
    };
    let meters = at.meters.register(Meters::register);
    let sender = Sender::new(at.network.clone(), Pace::default(), meters).lending(flags.transfer_memory);
    let service = Service {
        facts: Arc::new(facts),
        engine: host.handle(),
        means: Means { sender: Arc::new(sender), random: at.random.clone() },
        drain: at.drain.clone(),
        key: EndKey::new(at.random.bytes()),
    };
    PrefillWorker { flags, host, at, service }
}

impl PrefillWorker {
    /// Serves and stays a member until drained.
    pub async fn serve(self) -> Result<(), worker::Error> {
        let PrefillWorker { flags, host, at, service } = self;
        let name = flags.worker.worker_name("prefill");
        let sender_key = service.key.public().bytes().to_vec().into();
        let record = WorkerRecord { sender_key, ..host.record(name, Role::Prefill, &at, String::new()) };
        let (health, routes) = process::grpc::base(DESCRIPTORS)?;
        let server = PrefillServer::new(service)
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT);
        let services = (health, routes.add_service(server));
        let (load, cache) = host.watch(Role::Prefill);
        let names = ["tandem.v1.Prefill", host.fingerprint().model.as_str()];
        at.run(&flags.worker, record, load, cache, &names, services).await
    }
}
