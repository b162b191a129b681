//! What etcd lists, from a snapshot on.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use etcd_client::{Client, Event as Change, EventType, GetOptions, KeyValue, WatchOptions, WatchStream};
use proto::{MESSAGE_LIMIT, v1::WorkerRecord};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, timeout},
};

use super::{
    Contact, Etcd, LONGEST_PAUSE,
    directory::Event,
    settings::{Fault, answered},
};

/// After so long without a change etcd is asked whether it is still there.
const QUIET: Duration = Duration::from_secs(3);

/// Reads etcd for as long as this runs.
#[derive(Debug)]
pub(super) struct Listing {
    etcd: Etcd,
    events: mpsc::Sender<Event>,
    contact: watch::Sender<Contact>,
    /// Values that are no members, by key: the revision at which each was said to be skipped.
    skipped: BTreeMap<Vec<u8>, i64>,
}

/// How a watch ends while etcd is well: what has been seen does not lead on to what is.
struct Outdated(&'static str);

impl Listing {
    pub(super) fn new(etcd: Etcd, events: mpsc::Sender<Event>, contact: watch::Sender<Contact>) -> Self {
        Self { etcd, events, contact, skipped: BTreeMap::new() }
    }

    pub(super) async fn run(mut self) {
        let mut backoff = self.etcd.backoff(LONGEST_PAUSE);
        for server in self.etcd.servers() {
            backoff.begins();
            let Err(fault) = self.stay(&server).await;
            self.away(&server, &fault);
            sleep(backoff.pause()).await;
        }
    }

    /// Lists and watches at one server, until it fails. What was seen at another is no base: it may know less, or be a new one.
    async fn stay(&mut self, server: &str) -> Result<Infallible, Fault> {
        let mut client = self.etcd.settings.connect(server).await?;
        loop {
            let revision = self.list(&mut client).await?;
            self.here(server);
            let Outdated(why) = self.watch(&mut client, revision).await?;
            tracing::info!(server, why, "etcd is listed anew");
        }
    }

    async fn list(&mut self, client: &mut Client) -> Result<i64, Fault> {
        let mut kv = client.kv_client().max_decoding_message_size(MESSAGE_LIMIT);
        let all = GetOptions::new().with_prefix();
        let found = answered(kv.get(self.etcd.settings.keys.all(), Some(all))).await?;
        let revision = found.header().map_or(0, etcd_client::ResponseHeader::revision);
        let mut before = std::mem::take(&mut self.skipped);
        let mut records = Vec::new();
        for entry in found.kvs() {
            if let Some((key, said)) = before.remove_entry(entry.key()) {
                self.skipped.insert(key, said);
            }
            records.extend(self.read(entry));
        }
        self.tell(Event::Listed(records)).await;
        Ok(revision)
    }

    async fn watch(&mut self, client: &mut Client, listed: i64) -> Result<Outdated, Fault> {
        let from = WatchOptions::new().with_prefix().with_start_revision(listed + 1);
        let mut watching = client.watch_client().max_decoding_message_size(MESSAGE_LIMIT);
        let mut stream = answered(watching.watch(self.etcd.settings.keys.all(), Some(from))).await?;
        loop {
            let message = next(&mut stream).await?;
            if message.canceled() && message.compact_revision() > 0 {
                return Ok(Outdated("its history was compacted"));
            }
            if message.canceled() {
                return Err(Fault::Ended(format!("the watch was cancelled: {}", message.cancel_reason())));
            }
            // A store that was wiped counts from 1 again: from where this one was nothing would come for a long time.
            if message.header().is_some_and(|header| header.revision() < listed) {
                return Ok(Outdated("its history is another"));
            }
            for change in message.events() {
                self.change(change).await;
            }
        }
    }

    async fn change(&mut self, change: &Change) {
        let Some(entry) = change.kv() else { return };
        let put = match change.event_type() {
            EventType::Put => self.read(entry),
            EventType::Delete => {
                self.skipped.remove(entry.key());
                None
            }
        };
        match (put, self.etcd.settings.keys.name(entry.key())) {
            (Some(record), _) => self.tell(Event::Put(record)).await,
            (None, Some(name)) => self.tell(Event::Deleted(name.to_owned())).await,
            (None, None) => {}
        }
    }

    /// None: it is no member. Each such value is counted, and said, once.
    fn read(&mut self, entry: &KeyValue) -> Option<Arc<WorkerRecord>> {
        match self.etcd.format.read(&self.etcd.settings.keys, entry) {
            Ok(record) => Some(Arc::new(record)),
            Err(reason) => {
                let revision = entry.mod_revision();
                if self.skipped.insert(entry.key().to_vec(), revision) != Some(revision) {
                    self.etcd.metrics.skipped.inc();
                    let key = String::from_utf8_lossy(entry.key());
                    tracing::warn!(%key, reason, "a value in etcd is no worker; skipped");
                }
                None
            }
        }
    }

    async fn tell(&self, event: Event) {
        // Nobody listens any more: this task is about to be ended.
        let _ = self.events.send(event).await;
    }

    fn here(&self, server: &str) {
        let before = self.contact.send_replace(Contact::Here);
        self.etcd.metrics.connected.set(1);
        if let Contact::Away { since, .. } = before {
            let seconds = since.elapsed().as_secs_f64();
            tracing::info!(server, seconds, "etcd is there");
        }
    }

    fn away(&self, server: &str, fault: &Fault) {
        let reason = format!("{server}: {fault}");
        self.contact.send_modify(|contact| match contact {
            Contact::Here => {
                self.etcd.metrics.connected.set(0);
                self.etcd.metrics.losses.inc();
                tracing::warn!(reason, "etcd is away; working on with the members that answer");
                *contact = Contact::Away { since: Instant::now(), reason };
            }
            Contact::Away { reason: before, .. } => {
                if *before == reason {
                    tracing::debug!(reason, "etcd still does not answer");
                } else {
                    tracing::warn!(reason, "etcd still does not answer");
                }
                *before = reason;
            }
        });
    }
}

/// The next message. A server that says nothing for long is asked to say something.
async fn next(stream: &mut WatchStream) -> Result<etcd_client::WatchResponse, Fault> {
    let message = match timeout(QUIET, stream.message()).await {
        Ok(message) => message?,
        Err(_) => {
            stream.request_progress().await?;
            answered(stream.message()).await?
        }
    };
    message.ok_or_else(|| Fault::Ended("the watch ended".to_owned()))
}

#[cfg(test)]
mod tests;
