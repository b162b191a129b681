//! What one worker says of itself.

use std::{convert::Infallible, sync::Arc, time::Duration};

use net::{Network, Traffic};
use proto::{
    MESSAGE_LIMIT,
    v1::{Load, WatchRequest, WorkerRecord, worker_client::WorkerClient},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until, timeout},
};
use tonic::{Status, transport::Endpoint};

use super::{backoff::Backoff, directory::Event};

const CONNECT: Duration = Duration::from_secs(2);
/// A worker that answers nothing for both is gone: sooner than requests that were lost with it give up on that.
const PING_INTERVAL: Duration = Duration::from_secs(1);
const PING_TIMEOUT: Duration = Duration::from_secs(3);
/// Loads change with every step; they are needed no more often than this.
const SHORTEST_BEAT: Duration = Duration::from_millis(20);
/// The longest pause before a worker that can't be heard is tried again.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Listens to one start of a worker, for as long as this runs.
pub(super) async fn follow(
    record: Arc<WorkerRecord>,
    network: Network,
    mut backoff: Backoff,
    events: mpsc::Sender<Event>,
) {
    loop {
        backoff.begins();
        let mut heard = false;
        let Err(status) = listen(&record, &network, &events, &mut heard).await;
        let pause = backoff.pause();
        let (worker, reason) = (&record.name, status.message());
        if heard {
            tracing::warn!(worker, reason, "a worker went silent");
        } else {
            tracing::debug!(worker, reason, ?pause, "a worker in etcd does not answer");
        }
        let silent = Event::Silent { name: record.name.clone(), incarnation: record.incarnation.clone() };
        let _ = events.send(silent).await;
        sleep(pause).await;
    }
}

async fn listen(
    record: &WorkerRecord,
    network: &Network,
    events: &mpsc::Sender<Event>,
    heard: &mut bool,
) -> Result<Infallible, Status> {
    let unreachable = |error: tonic::transport::Error| Status::unavailable(error.to_string());
    let late = |_| Status::deadline_exceeded("no answer in time");
    let channel = Endpoint::from_shared(format!("http://{}", record.grpc_address))
        .map_err(unreachable)?
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .connect_with_connector(net::connector(network, Traffic::Calls))
        .await
        .map_err(unreachable)?;
    let mut client = WorkerClient::new(channel).max_decoding_message_size(MESSAGE_LIMIT);
    let asked = WatchRequest { incarnation: record.incarnation.clone() };
    let mut said = timeout(CONNECT, client.watch(asked)).await.map_err(late)??.into_inner();
    let mut waiting: Option<Load> = None;
    let mut next = Instant::now();
    loop {
        tokio::select! {
            message = said.message() => {
                let message = message?.ok_or_else(|| Status::unavailable("the worker ended the stream"))?;
                waiting = message.load.or(waiting);
            }
            () = sleep_until(next), if waiting.is_some() => {
                next = Instant::now() + SHORTEST_BEAT;
                if let Some(load) = waiting.take() {
                    *heard = true;
                    let (name, incarnation) = (record.name.clone(), record.incarnation.clone());
                    let _ = events.send(Event::Heard { name, incarnation, load }).await;
                }
            }
        }
    }
}
