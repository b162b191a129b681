//! When a request is asked again, and after how long.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::Error;

/// Bounds of asking again. What may be asked again at all is no choice: see [`Error::again`].
#[derive(Debug, Clone)]
pub struct Retry {
    /// Calls a request makes at most; 1 never asks again.
    pub calls: u32,
    /// Time before the second call; doubles with each further one. An error's `retry_after` is waited for at least.
    pub initial_backoff: Duration,
    /// Longest backoff.
    pub max_backoff: Duration,
    /// Ask again also after tokens were delivered, and deliver the rest of an answer that begins with them.
    pub resume: bool,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            calls: 5,
            initial_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            resume: true,
        }
    }
}

/// The calls of one request, under one deadline.
#[derive(Debug)]
pub(crate) struct Calls {
    retry: Retry,
    made: u32,
    deadline: Option<Instant>,
}

impl Calls {
    pub(crate) fn new(retry: Retry, timeout: Option<Duration>) -> Self {
        Self { retry, made: 1, deadline: timeout.map(|timeout| Instant::now() + timeout) }
    }

    /// What the next call may take.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// The call's outcome, or the end of the time given.
    pub(crate) async fn within<T>(
        &self,
        call: impl Future<Output = Result<T, tonic::Status>>,
    ) -> Result<T, Error> {
        let Some(deadline) = self.deadline else {
            return call.await.map_err(|status| Error::from_status(&status));
        };
        match tokio::time::timeout_at(deadline, call).await {
            Ok(Ok(answer)) => Ok(answer),
            // What a library says of its own timer depends on the library.
            Ok(Err(_)) if Instant::now() >= deadline => Err(Error::deadline()),
            Ok(Err(status)) => Err(Error::from_status(&status)),
            Err(_) => Err(Error::deadline()),
        }
    }

    /// How long to wait before the next call; `None` if this error is the end.
    pub(crate) fn after(&mut self, error: &Error) -> Option<Duration> {
        let resumes = error.delivered == 0 || self.retry.resume;
        if !error.again() || self.made >= self.retry.calls || !resumes {
            return None;
        }
        let doubled = self.retry.initial_backoff.saturating_mul(1 << (self.made - 1).min(20));
        let least = error.retry_after.unwrap_or_default().max(doubled.min(self.retry.max_backoff));
        // Clients that failed together don't come back together.
        let delay = least.mul_f64(1.0 + rand::random::<f64>() * 0.5);
        if self.remaining().is_some_and(|remaining| remaining <= delay) {
            return None;
        }
        self.made += 1;
        Some(delay)
    }
}
