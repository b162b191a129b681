use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{Limits, Tenant};

/// What each tenant has in use, against its limits. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Quotas {
    accounts: Arc<Mutex<HashMap<Arc<str>, Account>>>,
}

#[derive(Debug)]
struct Account {
    /// Tokens that may be used now; below 0 while a request that began with more than were left is paid off.
    left: f64,
    at: Instant,
    in_flight: u32,
}

/// A tenant has used what it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Over {
    #[error("tokens-per-minute: the tenant's {limit} are used up")]
    Tokens {
        limit: u64,
        /// When there are enough again.
        after: Duration,
    },
    #[error("in-flight: the tenant's {limit} requests are in flight")]
    InFlight { limit: u32 },
}

const MINUTE: f64 = 60.0;

impl Quotas {
    /// Takes `tokens` tokens of a tenant for one request, the most that it may use; a request that needs more than a minute's worth
    /// begins when there is a minute's worth.
    ///
    /// # Errors
    /// What the tenant has used up, and for how long.
    pub fn charge(&self, tenant: &Tenant, tokens: u64, now: Instant) -> Result<Charge, Over> {
        let Limits { tokens_per_minute, in_flight } = tenant.limits;
        let mut accounts = self.lock();
        let full = tokens_per_minute.map_or(0.0, |limit| limit as f64);
        let account =
            accounts.entry(Arc::clone(&tenant.name)).or_insert(Account { left: full, at: now, in_flight: 0 });
        if let Some(limit) = in_flight.filter(|limit| account.in_flight >= *limit) {
            return Err(Over::InFlight { limit });
        }
        if let Some(limit) = tokens_per_minute {
            account.refill(limit, now);
            let missing = (tokens as f64).min(full) - account.left;
            if missing > 0.0 {
                let after = Duration::from_secs_f64(missing * MINUTE / full.max(1.0));
                return Err(Over::Tokens { limit, after });
            }
            account.left -= tokens as f64;
        }
        account.in_flight += 1;
        Ok(Charge { quotas: self.clone(), tenant: Arc::clone(&tenant.name), charged: tokens, used: 0 })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Account>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    fn refill(&mut self, limit: u64, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + passed * limit as f64 / MINUTE).min(limit as f64);
        self.at = now;
    }
}

/// Tokens taken for one request. What it has not used comes back when this is dropped.
#[derive(Debug)]
pub struct Charge {
    quotas: Quotas,
    tenant: Arc<str>,
    charged: u64,
    used: u64,
}

impl Charge {
    /// The request has used so many tokens more.
    pub fn used(&mut self, tokens: u64) {
        self.used = self.used.saturating_add(tokens);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut accounts = self.quotas.lock();
        if let Some(account) = accounts.get_mut(&self.tenant) {
            account.in_flight = account.in_flight.saturating_sub(1);
            account.left += self.charged.saturating_sub(self.used) as f64;
        }
    }
}
