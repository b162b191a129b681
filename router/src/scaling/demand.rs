use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Requests that no worker has yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unplaced {
    pub(crate) requests: u64,
    pub(crate) prompt_tokens: u64,
}

impl Unplaced {
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            prompt_tokens: self.prompt_tokens.saturating_add(other.prompt_tokens),
        }
    }
}

/// Those of this router. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Demand(Arc<Mutex<Unplaced>>);

impl Demand {
    /// A request wants workers until what this returns is dropped.
    pub(crate) fn of(&self, prompt_tokens: u32) -> Wanting {
        let one = Unplaced { requests: 1, prompt_tokens: prompt_tokens.into() };
        let mut all = self.lock();
        *all = all.and(one);
        Wanting { demand: self.clone(), one }
    }

    pub(crate) fn now(&self) -> Unplaced {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Unplaced> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Wanting {
    demand: Demand,
    one: Unplaced,
}

impl Drop for Wanting {
    fn drop(&mut self) {
        let mut all = self.demand.lock();
        all.requests = all.requests.saturating_sub(self.one.requests);
        all.prompt_tokens = all.prompt_tokens.saturating_sub(self.one.prompt_tokens);
    }
}
