//! Going down without losing anybody's work.

use std::{future::Future, time::Duration};

use tokio::{
    signal::unix::{SignalKind, signal},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The moment this process stops taking work, and the work it still has. Clones are the same drain.
#[derive(Debug, Clone, Default)]
pub struct Drain {
    begun: CancellationToken,
    forced: CancellationToken,
    work: TaskTracker,
}

/// Something that must end before the process may: as long as it lives, the drain waits.
#[derive(Debug)]
pub struct Work {
    _token: tokio_util::task::task_tracker::TaskTrackerToken,
}

impl Drain {
    /// A drain that only [`Drain::begin`] starts.
    pub fn new() -> Self {
        Self::default()
    }

    /// A drain that SIGTERM and SIGINT start; a second signal forces the end.
    pub fn on_signals() -> std::io::Result<Self> {
        let drain = Self::new();
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        let caught = drain.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
                if caught.has_begun() {
                    tracing::warn!("second signal: ending now");
                    caught.forced.cancel();
                } else {
                    tracing::info!("signal: draining");
                    caught.begin();
                }
            }
        });
        Ok(drain)
    }

    /// Also begins when stdin ends, which happens when the process at its other side dies, however it dies.
    pub fn begin_with_stdin(&self) {
        let drain = self.clone();
        // A blocking read can't be cancelled: a thread of its own does not hold up the runtime's end.
        std::thread::spawn(move || {
            let ended = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            tracing::info!(?ended, "stdin ended: draining");
            drain.begin();
        });
    }

    /// Stops taking work.
    pub fn begin(&self) {
        self.begun.cancel();
        self.work.close();
    }

    /// Whether work is still taken.
    pub fn has_begun(&self) -> bool {
        self.begun.is_cancelled()
    }

    /// Resolves when the drain begins.
    pub async fn begun(&self) {
        self.begun.cancelled().await;
    }

    /// Resolves when what still runs must be cut off.
    pub async fn forced(&self) {
        self.forced.cancelled().await;
    }

    /// Holds the process up until the returned value is dropped.
    pub fn hold(&self) -> Work {
        Work { _token: self.work.token() }
    }

    /// Runs a task that the drain waits for.
    pub fn spawn<F>(&self, task: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.work.spawn(task)
    }

    /// How many pieces of work are held now.
    pub fn held(&self) -> usize {
        self.work.len()
    }

    /// After the drain began: waits for all work, at most `grace`, then forces the end. True if all work ended by itself.
    pub async fn finish(&self, grace: Duration) -> bool {
        self.begun().await;
        let whole = tokio::select! {
            ended = timeout(grace, self.work.wait()) => ended.is_ok(),
            () = self.forced() => false,
        };
        if !whole {
            tracing::warn!(held = self.held(), "work was cut off at the end of the grace period");
        }
        self.forced.cancel();
        whole
    }
}
