use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

use crate::Error;

#[cfg(test)]
mod tests;

/// The engine's end of a stream. The last event travels beside the queue, so that a stream can always be ended, also when
/// its reader left the queue full.
#[derive(Debug)]
pub(crate) struct Outlet<E> {
    queue: mpsc::Sender<E>,
    end: Arc<Mutex<Option<Result<E, Error>>>>,
}

/// The reader's end.
#[derive(Debug)]
pub(crate) struct Inlet<E> {
    queue: mpsc::Receiver<E>,
    end: Arc<Mutex<Option<Result<E, Error>>>>,
    over: bool,
}

/// Why an event was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotSent {
    /// The queue is full.
    Full,
    /// The reader is gone.
    Gone,
}

/// A stream with room for `events` unread events.
pub(crate) fn outlet<E>(events: usize) -> (Outlet<E>, Inlet<E>) {
    let (sender, receiver) = mpsc::channel(events.max(1));
    let end = Arc::new(Mutex::new(None));
    (Outlet { queue: sender, end: Arc::clone(&end) }, Inlet { queue: receiver, end, over: false })
}

impl<E> Outlet<E> {
    /// Queues an event without waiting.
    pub(crate) fn send(&self, event: E) -> Result<(), NotSent> {
        self.queue.try_send(event).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => NotSent::Full,
            mpsc::error::TrySendError::Closed(_) => NotSent::Gone,
        })
    }

    /// Events that can be queued now.
    pub(crate) fn room(&self) -> usize {
        self.queue.capacity()
    }

    /// Whether the reader is gone.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.queue.is_closed()
    }

    /// Ends the stream: after the queued events the reader gets `last`, and no more.
    pub(crate) fn end(self, last: Result<E, Error>) {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
    }
}

impl<E> Inlet<E> {
    /// The next event; none after the last one or an error. A stream that nobody ended fails with [`Error::Stopped`].
    pub(crate) async fn next(&mut self) -> Option<Result<E, Error>> {
        if self.over {
            return None;
        }
        if let Some(event) = self.queue.recv().await {
            return Some(Ok(event));
        }
        self.over = true;
        let last = self.end.lock().unwrap_or_else(PoisonError::into_inner).take();
        Some(last.unwrap_or(Err(Error::Stopped)))
    }

    /// An event that is already queued.
    pub(crate) fn queued(&mut self) -> Option<E> {
        self.queue.try_recv().ok()
    }

    /// Tells the engine that nobody reads any more.
    pub(crate) fn abandon(&mut self) {
        self.queue.close();
    }
}
