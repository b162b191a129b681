//! What each prefill worker can resume from, as it says itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use prefix::{Chain, HashUnit, Namespace, PrefixHash};
use proto::MESSAGE_LIMIT;
use proto::v1::worker_client::WorkerClient;
use proto::v1::{CacheUpdate, Role, WatchRequest, WorkerRecord};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tonic::transport::Channel;

use crate::request::Request;

#[cfg(test)]
mod tests;

/// Before a worker whose stream broke is asked again.
const PAUSE: Duration = Duration::from_millis(500);

/// The prefix caches of all live prefill workers. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caches {
    by_incarnation: Arc<Mutex<BTreeMap<Bytes, Cache>>>,
}

#[derive(Debug)]
struct Cache {
    unit: HashUnit,
    held: Held,
    watching: JoinHandle<()>,
}

/// Hashes of the prompts that one worker can resume after.
#[derive(Clone, Debug, Default)]
struct Held(Arc<Mutex<BTreeMap<PrefixHash, u32>>>);

impl Caches {
    /// Begins to watch workers that are new and have a cache, and forgets those that are gone.
    pub(crate) fn follow<'a>(
        &self,
        members: impl Iterator<Item = &'a Arc<WorkerRecord>>,
        channel: impl Fn(&WorkerRecord) -> Option<Channel>,
    ) {
        let mut caches = self.lock();
        let mut before = std::mem::take(&mut *caches);
        for record in members.filter(|record| record.role() == Role::Prefill) {
            let known = before.remove(&record.incarnation);
            let cache = known.or_else(|| {
                let unit = HashUnit::new(record.hash_unit_tokens)?;
                let held = Held::default();
                let watching = watch(Arc::clone(record), channel(record)?, held.clone());
                Some(Cache { unit, held, watching: tokio::spawn(watching) })
            });
            if let Some(cache) = cache {
                caches.insert(record.incarnation.clone(), cache);
            }
        }
        for gone in before.into_values() {
            gone.watching.abort();
        }
    }

    /// Prompts that this start of a worker is known to resume after; nothing where it has no cache.
    pub(crate) fn count(&self, incarnation: &Bytes) -> Option<usize> {
        self.lock().get(incarnation).map(|cache| cache.held.lock().len())
    }

    /// What there is of one request's prompt, which may have begun to be answered.
    pub(crate) fn of<'a>(&self, request: &'a Request, output: &'a [u32]) -> Lookup<'a> {
        Lookup { caches: self.clone(), request, output, chains: Vec::new() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Bytes, Cache>> {
        self.by_incarnation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request's prompt in the caches. Workers of one fingerprint name it alike, so it is hashed once.
#[derive(Debug)]
pub(crate) struct Lookup<'a> {
    caches: Caches,
    request: &'a Request,
    /// Drawn already: it is prefilled after the prompt.
    output: &'a [u32],
    chains: Vec<(HashUnit, Namespace, Chain)>,
}

impl Lookup<'_> {
    /// Tokens of the prompt that this start of a worker need not compute.
    pub(crate) fn cached(&mut self, record: &WorkerRecord) -> u32 {
        let found = self.caches.lock().get(&record.incarnation).map(|cache| (cache.unit, cache.held.clone()));
        let (Some((unit, held)), Some(fingerprint)) = (found, &record.fingerprint) else { return 0 };
        if held.lock().is_empty() {
            return 0;
        }
        let request = self.request;
        let namespace = proto::namespace::of(&request.tenant, &request.cache_salt, fingerprint);
        let known = self.chains.iter().find(|(a, b, _)| (*a, *b) == (unit, namespace));
        if let Some((.., chain)) = known {
            return held.longest(chain);
        }
        let mut chain = Chain::of(&namespace, unit, &request.prompt);
        chain.extend(self.output);
        let longest = held.longest(&chain);
        self.chains.push((unit, namespace, chain));
        longest
    }
}

impl Held {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PrefixHash, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, update: CacheUpdate) {
        let hash = |bytes: &[u8]| bytes.try_into().ok().map(PrefixHash);
        let mut held = self.lock();
        if update.whole {
            held.clear();
        }
        for gone in update.removed.iter().filter_map(|bytes| hash(bytes)) {
            held.remove(&gone);
        }
        let stored = update.stored.iter().filter_map(|each| Some((hash(&each.hash)?, each.position)));
        held.extend(stored);
    }

    /// Position of the last boundary that is held and leaves a token to compute.
    fn longest(&self, chain: &Chain) -> u32 {
        let held = self.lock();
        let usable = chain.boundaries().take(chain.usable().0 as usize);
        let found = usable.filter(|boundary| held.get(&boundary.hash) == Some(&boundary.tokens.0)).last();
        found.map_or(0, |boundary| boundary.tokens.0)
    }
}

/// Keeps `held` as the worker says, until the task is ended.
async fn watch(record: Arc<WorkerRecord>, channel: Channel, held: Held) {
    loop {
        let asked = WatchRequest { incarnation: record.incarnation.clone() };
        let mut client = WorkerClient::new(channel.clone()).max_decoding_message_size(MESSAGE_LIMIT);
        match client.watch(asked).await {
            Ok(answer) => {
                let mut events = answer.into_inner();
                while let Ok(Some(event)) = events.message().await {
                    if let Some(update) = event.cache {
                        held.apply(update);
                    }
                }
            }
            Err(status) => {
                tracing::debug!(worker = record.name, reason = status.message(), "its cache is not known");
            }
        }
        // What is not told is not counted on.
        held.lock().clear();
        sleep(PAUSE).await;
    }
}
