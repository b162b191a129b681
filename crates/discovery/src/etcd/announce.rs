//! The worker's side.

use std::{convert::Infallible, time::Duration};

use async_trait::async_trait;
use etcd_client::{Client, Compare, CompareOp, KeyValue, PutOptions, Txn, TxnOp};
use proto::v1::{Load, WorkerRecord};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    Etcd, LONGEST_PAUSE,
    settings::{ANSWER, Fault, answered},
};
use crate::{Announce, Error, complete};

/// How long a worker that has gone without a word stays listed (seconds). On a busy machine leases of a few seconds run out
/// although they are renewed.
const LEASE_SECONDS: i64 = 12;
const RENEW: Duration = Duration::from_secs(LEASE_SECONDS.unsigned_abs() / 3);

#[async_trait]
impl Announce for Etcd {
    /// The load is not announced: routers ask the worker for it.
    async fn announce(&self, record: WorkerRecord, _: watch::Receiver<Load>) -> Error {
        let value = match complete(&record).and_then(|()| self.format.write(&record)) {
            Ok(value) => value,
            Err(refused) => return refused,
        };
        let key = self.settings.keys.of(&record.name);
        let mut seat = Seat { etcd: self, record: &record, key, value, held: None, joined: false };
        let mut backoff = self.backoff(LONGEST_PAUSE);
        let mut said = None;
        for server in self.servers() {
            backoff.begins();
            let fault = match seat.stay(&server).await {
                Err(Stop::Refused(refused)) => return refused,
                Err(Stop::Fault(fault)) => fault,
            };
            if self.metrics.connected.set(0) == 1 {
                self.metrics.losses.inc();
                said = None;
            }
            let (reason, pause) = (fault.to_string(), backoff.pause());
            if said.as_ref() == Some(&reason) {
                tracing::debug!(server, reason, ?pause, "etcd is still away");
            } else {
                tracing::warn!(server, reason, ?pause, "etcd is away; registering again when it is back");
            }
            said = Some(reason);
            sleep(pause).await;
        }
        // The servers go round for ever.
        Error::Address { address: String::new(), reason: "no etcd server is named".to_owned() }
    }
}

/// One worker's place in etcd. Dropping it gives the lease back, as far as etcd can be told.
struct Seat<'a> {
    etcd: &'a Etcd,
    record: &'a WorkerRecord,
    key: String,
    value: Vec<u8>,
    /// The lease, and the last connection over which it was alive.
    held: Option<(i64, Client)>,
    /// Whether this start of the worker has had its name.
    joined: bool,
}

enum Stop {
    Fault(Fault),
    Refused(Error),
}

impl<F: Into<Fault>> From<F> for Stop {
    fn from(fault: F) -> Self {
        Self::Fault(fault.into())
    }
}

impl Seat<'_> {
    /// Is a member at one server until that fails, under one lease after another.
    async fn stay(&mut self, server: &str) -> Result<Infallible, Stop> {
        let mut client = self.etcd.settings.connect(server).await?;
        loop {
            let lease = match self.held.take() {
                Some((lease, _)) => lease,
                None => answered(client.lease_grant(LEASE_SECONDS, None)).await?.id(),
            };
            self.held = Some((lease, client.clone()));
            self.hold(&mut client, lease).await?;
            self.held = None;
            tracing::warn!(worker = self.record.name, "the lease ran out; registering again");
        }
    }

    /// Keeps the lease alive and the key under it. Returns when the lease is gone.
    async fn hold(&mut self, client: &mut Client, lease: i64) -> Result<(), Stop> {
        let (mut keeper, mut answers) = match answered(client.lease_keep_alive(lease)).await {
            Ok(alive) => alive,
            Err(Fault::Etcd(etcd_client::Error::LeaseKeepAliveError(_))) => return Ok(()),
            Err(fault) => return Err(fault.into()),
        };
        loop {
            self.write(client, lease).await?;
            self.etcd.metrics.connected.set(1);
            // Nothing is asked, so nothing comes but the end of the connection.
            let answer = match timeout(RENEW, answers.message()).await {
                Ok(ended) => ended?,
                Err(_) => {
                    keeper.keep_alive().await?;
                    answered(answers.message()).await?
                }
            };
            let answer = answer.ok_or_else(|| Fault::Ended("the lease's stream ended".to_owned()))?;
            if answer.ttl() <= 0 {
                return Ok(());
            }
        }
    }

    /// Writes the key unless it is there. What is written rests on what was read, so that neither a late message of a former start
    /// nor one of this worker's own undoes what came after it.
    async fn write(&mut self, client: &mut Client, lease: i64) -> Result<(), Stop> {
        loop {
            let found = answered(client.get(self.key.as_str(), None)).await?;
            let entry = found.kvs().first();
            if entry.is_some_and(|entry| entry.value() == self.value && entry.lease() == lease) {
                return self.has_joined();
            }
            if self.joined && entry.is_some_and(|entry| self.is_another(entry)) {
                return Err(Stop::Refused(Error::Refused {
                    address: self.etcd.settings.servers.join(","),
                    reason: "a newer start of this worker has joined".to_owned(),
                }));
            }
            let seen = entry.map_or(0, KeyValue::mod_revision);
            let unchanged = Compare::mod_revision(self.key.as_str(), CompareOp::Equal, seen);
            let leased = PutOptions::new().with_lease(lease);
            let put = TxnOp::put(self.key.as_str(), self.value.as_slice(), Some(leased));
            let written = Txn::new().when([unchanged]).and_then([put]);
            if answered(client.txn(written)).await?.succeeded() {
                self.etcd.metrics.registrations.inc();
                self.joined = false;
                return self.has_joined();
            }
        }
    }

    /// Whether a value is a good record of another start of this worker.
    fn is_another(&self, entry: &KeyValue) -> bool {
        let read = self.etcd.format.read(&self.etcd.settings.keys, entry);
        read.is_ok_and(|record| record.incarnation != self.record.incarnation)
    }

    fn has_joined(&mut self) -> Result<(), Stop> {
        if !self.joined {
            tracing::info!(worker = self.record.name, key = self.key, "joined");
        }
        self.joined = true;
        Ok(())
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        if let (Some((lease, mut client)), Ok(runtime)) =
            (self.held.take(), tokio::runtime::Handle::try_current())
        {
            // Nobody waits for it: a worker that ends sooner is known to have ended, and its lease runs out.
            runtime.spawn(async move { timeout(ANSWER, client.lease_revoke(lease)).await });
        }
    }
}
