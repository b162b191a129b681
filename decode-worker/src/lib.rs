//! Turn received state into tokens.
//!
//! The router calls [`Decode`](proto::v1::decode_server::Decode): `Reserve` leases engine room under a ticket, `Run` waits
//! for the ticket's state to be committed and streams its tokens, `Release` gives a ticket back. Prefill workers connect to
//! the data listener and fill the room through `kvxfer`. Below is `engine`, loaded by `host`; around it is `worker`.
//!
//! Who holds a sequence's room: the ledger (reserved), the transfer's sink (transferring), the ledger again (committed),
//! the `Run` stream (decoding). Each gives it back when dropped, and a lease bounds every wait.

mod book;
mod error;
mod flags;
mod ledger;
mod room;
mod run;
mod service;

use std::sync::Arc;
use std::time::Duration;

use host::Host;
use kvxfer::{EndKey, Meters, Pace, Receiver};
use net::Listener;
use proto::v1::Role;
use proto::v1::decode_server::DecodeServer;
use proto::{DESCRIPTORS, MESSAGE_LIMIT};
use tokio_util::sync::CancellationToken;
use worker::Serving;

pub use flags::Flags;

use book::Book;
use service::{Facts, Service};

/// What the outside gives a decode worker.
#[derive(Debug)]
pub struct Deps {
    pub host: Host,
    /// Bound and observed; its drain ends the worker.
    pub at: Serving,
    /// Where state is taken in.
    pub data: Listener,
}

/// A decode worker that is built and does not serve yet.
#[derive(Debug)]
pub struct DecodeWorker {
    flags: Flags,
    host: Host,
    at: Serving,
    data: Listener,
    data_endpoint: String,
    service: Service,
    receiver: Arc<Receiver>,
}

/// Why a worker could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("data listener: {0}")]
    Data(#[from] std::io::Error),
    #[error(transparent)]
    Unreachable(#[from] process::net::BindError),
    #[error("incarnation: {0}")]
    Incarnation(#[from] kvxfer::BadLength),
}

/// How long transfers get to notice that nobody waits for them, at the end.
const LAST_TRANSFERS: Duration = Duration::from_secs(1);

/// Puts a decode worker together.
pub fn build(flags: Flags, deps: Deps) -> Result<DecodeWorker, BuildError> {
    let Deps { host, at, data } = deps;
    let data_endpoint = flags.worker.reached_at("data", data.local_addr()?)?;
    let meters = at.meters.register(Meters::register);
    let incarnation = kvxfer::Incarnation::try_from(&at.incarnation.bytes()[..])?;
    let book = Book::new(flags.lease(), incarnation, *host.layout(), meters.clone());
    let receiver = Receiver::new(Pace::default(), flags.bounds(), meters).borrowing(flags.transfer_memory);
    let facts = Facts {
        incarnation: at.incarnation.clone(),
        fingerprint: host.fingerprint().clone(),
        layout: *host.layout(),
        context: host.context(),
        grpc_address: at.grpc_address.clone(),
        data_endpoint: data_endpoint.clone(),
        lease_millis: flags.reservation_lease,
    };
    let service = Service {
        facts: Arc::new(facts),
        engine: host.handle(),
        book,
        drain: at.drain.clone(),
        random: at.random.clone(),
        key: EndKey::new(at.random.bytes()),
    };
    Ok(DecodeWorker { flags, host, at, data, data_endpoint, service, receiver: Arc::new(receiver) })
}

impl DecodeWorker {
    /// Serves and stays a member until drained.
    pub async fn serve(self) -> Result<(), worker::Error> {
        let DecodeWorker { flags, host, at, data, data_endpoint, service, receiver } = self;
        let name = flags.worker.worker_name("decode");
        let record = host.record(name, Role::Decode, &at, data_endpoint);
        let model = host.fingerprint().model.clone();
        let (health, routes) = process::grpc::base(DESCRIPTORS)?;
        let book = service.book.clone();
        let server = DecodeServer::new(service)
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT);
        let services = (health, routes.add_service(server));

        // state comes in for as long as anybody may wait for it: longer than calls are taken
        let stop = CancellationToken::new();
        let mut transfers = tokio::spawn(kvxfer::serve(data, receiver, Arc::new(book.clone()), stop.clone()));
        let (load, cache) = host.watch(Role::Decode);
        let names = ["tandem.v1.Decode", model.as_str()];
        let served = tokio::select! {
            served = at.run(&flags.worker, record, load, cache, &names, services) => served,
            () = book.keep_time() => Ok(()),
        };
        stop.cancel();
        if tokio::time::timeout(LAST_TRANSFERS, &mut transfers).await.is_err() {
            transfers.abort();
        }
        served
    }
}
