//! One connection to each incarnation of each worker, made when first needed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use net::{Network, Traffic};
use proto::v1::WorkerRecord;
use tonic::transport::{Channel, Endpoint};

use crate::error::Error;

const CONNECT: Duration = Duration::from_secs(1);
/// A peer that does not answer a ping is gone after interval and timeout together.
const PING_INTERVAL: Duration = Duration::from_secs(1);
const PING_TIMEOUT: Duration = Duration::from_secs(1);
/// A stream's tokens wait here for a slow client, and then in the worker.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// The connections. Clones are the same connections.
#[derive(Clone, Debug)]
pub(crate) struct Channels {
    network: Network,
    by_incarnation: Arc<Mutex<BTreeMap<Bytes, Channel>>>,
}

impl Channels {
    /// No connection yet.
    pub(crate) fn new(network: Network) -> Self {
        Self { network, by_incarnation: Arc::default() }
    }

    /// The connection to this start of the worker. Must be called inside the runtime.
    pub(crate) fn to(&self, record: &WorkerRecord) -> Result<Channel, Error> {
        let mut channels = self.by_incarnation.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = channels.get(&record.incarnation) {
            return Ok(channel.clone());
        }
        let endpoint = Endpoint::from_shared(format!("http://{}", record.grpc_address))
            .map_err(|error| Error::Internal(format!("worker {:?} has a bad address: {error}", record.name)))?
            .connect_timeout(CONNECT)
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        let channel = endpoint.connect_with_connector_lazy(net::connector(&self.network, Traffic::Calls));
        channels.insert(record.incarnation.clone(), channel.clone());
        Ok(channel)
    }

    /// Forgets the connections to incarnations that are gone; streams that still use one keep it.
    pub(crate) fn keep(&self, alive: impl Fn(&Bytes) -> bool) {
        let mut channels = self.by_incarnation.lock().unwrap_or_else(PoisonError::into_inner);
        channels.retain(|incarnation, _| alive(incarnation));
    }
}
