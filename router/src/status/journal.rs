//! The requests that run, and the last that have ended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::v1::{Timing, WorkerRecord};
use tokio::time::Instant;

use crate::admission::Arrival;
use crate::request::Request;

/// Ended requests that are remembered.
const ENDED: usize = 50;

/// Of one router. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal(Arc<Mutex<Stories>>);

#[derive(Debug, Default)]
struct Stories {
    /// The number of the next one.
    next: u64,
    running: BTreeMap<u64, Arc<Mutex<Record>>>,
    ended: VecDeque<Record>,
}

/// What is written down of one request, by all that serve it. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    journal: Journal,
    number: u64,
    record: Arc<Mutex<Record>>,
}

/// One admitted request.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// In order of admission.
    pub(super) number: u64,
    pub(super) id: String,
    pub(super) arrived: Instant,
    pub(super) prompt_tokens: u32,
    pub(super) output_tokens: u32,
    /// Known with the first token.
    pub(super) cached_tokens: Option<u32>,
    pub(super) migrations: u32,
    /// Where it is or was last.
    pub(super) workers: Option<Pair>,
    pub(super) stage: Stage,
    /// Of what is over: `Default` is 0.
    pub(super) timing: Timing,
    /// When the calls to its workers began that led to its first token.
    pub(super) began: Option<Instant>,
    /// Whether its state has ever come to a decode worker.
    pub(super) committed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) prefill: Arc<WorkerRecord>,
    pub(super) decode: Arc<WorkerRecord>,
}

/// Where a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// On no workers, at first or since some failed it.
    Placing,
    /// On workers since `since`; its state is not committed yet.
    Transferring {
        since: Instant,
    },
    /// Its state is committed at the decode worker.
    Decoding,
    Ended {
        at: Instant,
        outcome: String,
    },
}

impl Journal {
    /// A request is admitted.
    pub(crate) fn begin(&self, request: &Request, arrival: &Arrival) -> Story {
        let mut stories = self.lock();
        let number = stories.next;
        stories.next += 1;
        let record = Arc::new(Mutex::new(Record {
            number,
            id: request.id.clone(),
            arrived: arrival.at,
            prompt_tokens: request.prompt_tokens(),
            output_tokens: 0,
            cached_tokens: None,
            migrations: 0,
            workers: None,
            stage: Stage::Placing,
            timing: Timing::default(),
            began: None,
            committed: false,
        }));
        stories.running.insert(number, Arc::clone(&record));
        Story { journal: self.clone(), number, record }
    }

    /// The running requests in order of admission, then the ended in the order in which they ended.
    pub(super) fn records(&self) -> (Vec<Record>, Vec<Record>) {
        let stories = self.lock();
        let running = stories.running.values().map(|record| own(record).clone()).collect();
        (running, stories.ended.iter().cloned().collect())
    }

    fn lock(&self) -> MutexGuard<'_, Stories> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Story {
    /// The request is on these workers, after so many migrations.
    pub(crate) fn placed(
        &self,
        prefill: &Arc<WorkerRecord>,
        decode: &Arc<WorkerRecord>,
        migrations: u32,
        now: Instant,
    ) {
        let mut record = own(&self.record);
        record.workers = Some(Pair { prefill: Arc::clone(prefill), decode: Arc::clone(decode) });
        record.migrations = migrations;
        record.stage = Stage::Transferring { since: now };
    }

    /// Its workers have been called.
    pub(crate) fn began(&self, now: Instant) {
        let mut record = own(&self.record);
        if record.cached_tokens.is_none() {
            record.began = Some(now);
        }
    }

    /// Its very first token, which so many tokens of the prompt needed no computing for.
    pub(crate) fn first_token(&self, cached_tokens: u32, timing: &Timing) {
        let mut record = own(&self.record);
        record.cached_tokens = Some(cached_tokens);
        record.timing.clone_from(timing);
    }

    /// Its state is at the decode worker.
    pub(crate) fn committed(&self, timing: &Timing) {
        let mut record = own(&self.record);
        record.stage = Stage::Decoding;
        record.committed = true;
        record.timing.transfer = timing.transfer;
    }

    /// Its output has so many tokens.
    pub(crate) fn drawn(&self, tokens: u32) {
        own(&self.record).output_tokens = tokens;
    }

    /// It has no workers any more.
    pub(crate) fn interrupted(&self) {
        own(&self.record).stage = Stage::Placing;
    }

    /// It has ended.
    pub(crate) fn ended(&self, outcome: &str, now: Instant) {
        let mut stories = self.journal.lock();
        if stories.running.remove(&self.number).is_none() {
            return;
        }
        let mut record = own(&self.record).clone();
        record.stage = Stage::Ended { at: now, outcome: outcome.to_owned() };
        if stories.ended.len() >= ENDED {
            stories.ended.pop_front();
        }
        stories.ended.push_back(record);
    }
}

fn own(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}
