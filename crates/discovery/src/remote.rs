//! A worker's way to the registry inside a router.

use std::{convert::Infallible, time::Duration};

use async_trait::async_trait;
use net::{Network, Traffic};
use proto::{
    status::Fault,
    v1::{ErrorReason, JoinRequest, Load, WorkerRecord, membership_client::MembershipClient},
};
use tokio::{
    sync::{mpsc, watch},
    time::{sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

use crate::{Announce, Error};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_BEAT: Duration = Duration::from_millis(500);
/// Loads change with every step; the router needs them no more often than this.
const SHORTEST_BEAT: Duration = Duration::from_millis(20);

/// Joins the membership of the router at `address` (host:port).
#[derive(Debug, Clone)]
pub struct Remote {
    address: String,
    endpoint: Endpoint,
    network: Network,
}

impl Remote {
    /// Checks the address; connects only when announcing.
    pub fn new(address: &str, network: Network) -> Result<Self, Error> {
        let url = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
        let endpoint = Endpoint::from_shared(url)
            .map_err(|error| Error::Address { address: address.to_owned(), reason: error.to_string() })?
            .connect_timeout(Duration::from_secs(2))
            .http2_keep_alive_interval(Duration::from_secs(1))
            .keep_alive_timeout(Duration::from_secs(3))
            .keep_alive_while_idle(true);
        Ok(Self { address: address.to_owned(), endpoint, network })
    }

    async fn stay(
        &self,
        record: &WorkerRecord,
        load: &mut watch::Receiver<Load>,
    ) -> Result<Infallible, tonic::Status> {
        let connector = net::connector(&self.network, Traffic::Calls);
        let connected = self.endpoint.connect_with_connector(connector).await;
        let channel: Channel = connected.map_err(|error| tonic::Status::unavailable(error.to_string()))?;
        let (beats, stream) = mpsc::channel(4);
        let first = JoinRequest { record: Some(record.clone()), load: Some(*load.borrow_and_update()) };
        // The queue is empty and its reader is below, so this can't be refused.
        let _ = beats.try_send(first);
        let mut answers =
            MembershipClient::new(channel).join(ReceiverStream::new(stream)).await?.into_inner();
        let mut joined = false;
        loop {
            let Some(answer) = answers.message().await? else {
                return Err(tonic::Status::unavailable("the registry ended the membership"));
            };
            if !joined {
                joined = true;
                tracing::info!(registry = %self.address, worker = %record.name, "joined");
            }
            sleep(SHORTEST_BEAT).await;
            let pause = (Duration::from_millis(answer.lease_millis) / 3).min(LONGEST_BEAT);
            // A load that never changes again still has to be confirmed within the lease.
            let _ = timeout(pause, load.changed()).await;
            let beat = JoinRequest { record: None, load: Some(*load.borrow_and_update()) };
            if beats.send(beat).await.is_err() {
                return Err(tonic::Status::unavailable("the registry hung up"));
            }
        }
    }
}

#[async_trait]
impl Announce for Remote {
    async fn announce(&self, record: WorkerRecord, mut load: watch::Receiver<Load>) -> Error {
        let mut pause = FIRST_PAUSE;
        loop {
            let began = tokio::time::Instant::now();
            let Err(status) = self.stay(&record, &mut load).await;
            let reason = status.message().to_owned();
            if let ErrorReason::InvalidField | ErrorReason::StaleIncarnation =
                Fault::from_status(&status).reason
            {
                return Error::Refused { address: self.address.clone(), reason };
            }
            if began.elapsed() > LONGEST_PAUSE {
                pause = FIRST_PAUSE;
            }
            tracing::warn!(registry = %self.address, reason, ?pause, "not a member; joining again");
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
