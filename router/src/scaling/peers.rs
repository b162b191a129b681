//! What the cluster's other routers have to do.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures::future::try_join_all;
use net::{Network, Traffic};
use proto::v1::peer_client::PeerClient;
use proto::v1::{DemandRequest, DemandResponse};
use tokio::net::lookup_host;
use tokio::time::timeout;
use tonic::transport::Endpoint;

use super::demand::Unplaced;

/// Longest wait for all of them.
const ANSWER: Duration = Duration::from_millis(800);

/// All routers of the cluster, this one among them.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    /// Names (host:port), each of which may stand for several.
    names: Vec<String>,
    network: Network,
    own: Bytes,
}

impl Peers {
    pub(crate) fn new(names: Vec<String>, network: Network, own: Bytes) -> Self {
        Self { names, network, own }
    }

    /// What the others have, together.
    ///
    /// # Errors
    /// Who did not answer: a part of the demand is no measure of it.
    pub(crate) async fn demand(&self) -> Result<Unplaced, String> {
        let all = async {
            let mut addresses: BTreeSet<SocketAddr> = BTreeSet::new();
            for name in &self.names {
                addresses.extend(lookup_host(name).await.map_err(|fault| format!("{name}: {fault}"))?);
            }
            try_join_all(addresses.into_iter().map(|address| self.ask(address))).await
        };
        let late = |_| format!("{}: no answer in time", self.names.join(", "));
        let answers = timeout(ANSWER, all).await.map_err(late)??;
        let others = answers.into_iter().filter(|answer| answer.router != self.own);
        Ok(others.fold(Unplaced::default(), |sum, answer| {
            sum.and(Unplaced { requests: answer.requests, prompt_tokens: answer.prompt_tokens })
        }))
    }

    async fn ask(&self, address: SocketAddr) -> Result<DemandResponse, String> {
        let wrong = |fault: &dyn std::fmt::Display| format!("router {address}: {fault}");
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|fault| wrong(&fault))?;
        let channel = endpoint.connect_with_connector(net::connector(&self.network, Traffic::Public)).await;
        let mut client = PeerClient::new(channel.map_err(|fault| wrong(&fault))?);
        Ok(client.demand(DemandRequest {}).await.map_err(|status| wrong(&status.message()))?.into_inner())
    }
}
