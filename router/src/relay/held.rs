//! Everything that serves one request, in a place that is emptied at its deadline.
//!
//! A stream is driven by its client. One that reads nothing would hold a permit and a slot for ever, since nobody would
//! look at the time; so a task of its own does.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use futures::StreamExt;
use proto::v1::{PrefillResponse, RunResponse};
use tokio::task::JoinHandle;
use tokio::time::{Sleep, sleep_until};
use tonic::Status;

use crate::dispatch::Decoding;
use crate::error::Error;

pub(super) const LATE: Error = Error::Deadline { stage: "tokens were generated" };

#[derive(Debug)]
pub(super) struct Held {
    slot: Slot,
    watchdog: JoinHandle<()>,
}

#[derive(Clone, Debug)]
struct Slot(Arc<Mutex<Option<Box<Decoding>>>>);

/// The next thing that happened to a running request.
pub(super) enum Heard {
    Prefill(Option<Result<PrefillResponse, Status>>),
    Decode(Option<Result<RunResponse, Status>>),
    /// It is time to look at the time.
    Alarm,
}

impl Held {
    pub(super) fn new(decoding: Decoding) -> Self {
        let deadline = decoding.placed.admitted.arrival.deadline;
        let slot = Slot(Arc::new(Mutex::new(Some(Box::new(decoding)))));
        let watched = slot.clone();
        let watchdog = tokio::spawn(async move {
            sleep_until(deadline).await;
            let late = watched.lock().take();
            if let Some(mut decoding) = late {
                decoding.placed.admitted.outcome.failed(&LATE);
            }
        });
        Self { slot, watchdog }
    }

    /// Looks at what is held; an error when the deadline has taken it.
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut Decoding) -> T) -> Result<T, Error> {
        self.slot.lock().as_mut().map(|decoding| look(decoding)).ok_or(LATE)
    }

    /// Takes what is held; nothing when the deadline was faster.
    pub(super) fn take(self) -> Option<Box<Decoding>> {
        self.slot.lock().take()
    }

    /// Waits for either worker, or the alarm.
    pub(super) async fn hear(&self, mut alarm: Pin<&mut Sleep>) -> Heard {
        poll_fn(|context| {
            let mut slot = self.slot.lock();
            let Some(decoding) = slot.as_mut() else { return Poll::Ready(Heard::Alarm) };
            if !decoding.prefill.is_over()
                && let Poll::Ready(event) = decoding.prefill.poll_next_unpin(context)
            {
                return Poll::Ready(Heard::Prefill(event));
            }
            if !decoding.decode.is_over()
                && let Poll::Ready(event) = decoding.decode.poll_next_unpin(context)
            {
                return Poll::Ready(Heard::Decode(event));
            }
            alarm.as_mut().poll(context).map(|()| Heard::Alarm)
        })
        .await
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.watchdog.abort();
        // An aborted task is dropped later, with its share of the slot; what is held must go now.
        self.slot.lock().take();
    }
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Box<Decoding>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
