//! What a worker can resume from, told to whoever watches it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::Stream;
use proto::v1::{CacheUpdate, CachedCheckpoint};
use tokio::sync::watch;

#[cfg(test)]
mod tests;

/// Changes that are kept for watchers that are behind; one that is further behind is told everything again.
const KEPT: usize = 4096;

/// A change of what is held.
#[derive(Clone, Debug, PartialEq)]
pub enum CacheChange {
    /// A checkpoint is there from now on.
    Stored(CachedCheckpoint),
    /// The checkpoint of this hash is gone.
    Removed(Bytes),
}

/// The checkpoints that a worker holds, and how they changed. Clones are the same log.
#[derive(Clone, Debug, Default)]
pub struct CacheLog {
    log: Arc<Mutex<Log>>,
    changed: Arc<watch::Sender<()>>,
}

#[derive(Debug, Default)]
struct Log {
    held: BTreeMap<Bytes, CachedCheckpoint>,
    recent: VecDeque<CacheChange>,
    /// How many changes there were before those in `recent`.
    forgotten: u64,
}

impl CacheLog {
    /// Takes note of a change.
    pub fn record(&self, change: CacheChange) {
        let mut log = self.lock();
        match &change {
            CacheChange::Stored(checkpoint) => {
                log.held.insert(checkpoint.hash.clone(), checkpoint.clone());
            }
            CacheChange::Removed(hash) => {
                log.held.remove(hash);
            }
        }
        log.recent.push_back(change);
        if log.recent.len() > KEPT {
            log.recent.pop_front();
            log.forgotten += 1;
        }
        drop(log);
        self.changed.send_replace(());
    }

    /// Takes note of what is held now, whatever was before.
    pub fn replace(&self, stored: impl IntoIterator<Item = CacheChange>) {
        let mut log = self.lock();
        // Nobody has seen what comes after this many changes, so that all are told everything again.
        log.forgotten += log.recent.len() as u64 + 1;
        log.recent.clear();
        log.held.clear();
        for change in stored {
            if let CacheChange::Stored(checkpoint) = change {
                log.held.insert(checkpoint.hash.clone(), checkpoint);
            }
        }
        drop(log);
        self.changed.send_replace(());
    }

    /// Everything that is held, then every change, several in one where they have piled up.
    pub fn updates(&self) -> impl Stream<Item = CacheUpdate> + Send + use<> {
        let heard = self.changed.subscribe();
        futures::stream::unfold((self.clone(), heard, None), |(own, mut heard, seen)| async move {
            loop {
                heard.borrow_and_update();
                let (update, now) = own.since(seen);
                if seen != Some(now) {
                    return Some((update, (own, heard, Some(now))));
                }
                heard.changed().await.ok()?;
            }
        })
    }

    /// What has changed after the first `seen` changes, and how many there are by now.
    fn since(&self, seen: Option<u64>) -> (CacheUpdate, u64) {
        let log = self.lock();
        let now = log.forgotten + log.recent.len() as u64;
        let behind = seen.and_then(|seen| seen.checked_sub(log.forgotten));
        let Some(behind) = behind else {
            let stored = log.held.values().cloned().collect();
            return (CacheUpdate { whole: true, stored, removed: Vec::new() }, now);
        };
        // Of several changes of one hash the last one counts.
        let mut last = BTreeMap::new();
        for change in log.recent.iter().skip(usize::try_from(behind).unwrap_or(usize::MAX)) {
            let (hash, stored) = match change {
                CacheChange::Stored(checkpoint) => (checkpoint.hash.clone(), Some(checkpoint.clone())),
                CacheChange::Removed(hash) => (hash.clone(), None),
            };
            last.insert(hash, stored);
        }
        let mut update = CacheUpdate::default();
        for (hash, stored) in last {
            match stored {
                Some(checkpoint) => update.stored.push(checkpoint),
                None => update.removed.push(hash),
            }
        }
        (update, now)
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
