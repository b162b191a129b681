//! How long to wait before what failed is tried again.

use std::time::Duration;

use process::Random;
use tokio::time::Instant;

/// Pauses that double up to a cap. Each is drawn from its upper half, so that many who lost the same thing at once do not come
/// back at once.
#[derive(Debug)]
pub(super) struct Backoff {
    random: Random,
    next: Duration,
    longest: Duration,
    began: Instant,
}

const FIRST: Duration = Duration::from_millis(100);

impl Backoff {
    pub(super) fn new(random: Random, longest: Duration) -> Self {
        Self { random, next: FIRST, longest, began: Instant::now() }
    }

    /// Something is tried now.
    pub(super) fn begins(&mut self) {
        self.began = Instant::now();
    }

    /// It failed: the pause before it is tried again. What went well for longer than any pause begins anew.
    pub(super) fn pause(&mut self) -> Duration {
        if self.began.elapsed() > self.longest {
            self.next = FIRST;
        }
        let whole = self.next;
        self.next = (whole * 2).min(self.longest);
        let drawn = u32::try_from(self.random.seed() % 1024).unwrap_or_default();
        whole / 2 + whole / 2 * drawn / 1024
    }
}
