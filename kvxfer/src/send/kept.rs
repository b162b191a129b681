use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use crate::frame::Frame;
use crate::pace::Pace;
use crate::ticket::Incarnation;
use crate::wire::Wire;

/// Connections kept for one receiver, at most.
const MOST_A_RECEIVER: usize = 8;
/// Connections kept in all, at most.
const MOST: usize = 256;

/// A sender's connections between transfers, by the endpoint they lead to.
#[derive(Debug, Default)]
pub(super) struct Kept {
    idle: Mutex<Idle>,
}

#[derive(Debug, Default)]
struct Idle {
    /// Of each endpoint, the one used last at the end; ordered, so that a simulation closes them in the same order each time.
    links: BTreeMap<String, Vec<KeptLink>>,
    /// Somebody will close what is kept for too long.
    swept: bool,
}

#[derive(Debug)]
struct KeptLink {
    wire: Wire,
    /// Of the process that it leads to.
    incarnation: Incarnation,
    /// The receiver's last word was read.
    answered: bool,
    since: Instant,
}

impl KeptLink {
    /// Whether it leads where it did, with nothing left in it. Found without waiting: what is dead and does not show it yet is noticed
    /// by whoever uses it.
    fn is_usable(&mut self) -> bool {
        let alive = self.wire.look();
        loop {
            match self.wire.frame() {
                Ok(Some(Frame::Committed(_))) if !self.answered => self.answered = true,
                Ok(Some(
                    Frame::Welcome { .. } | Frame::Credit { .. } | Frame::Ack { .. } | Frame::Heartbeat,
                )) if !self.answered => {}
                Ok(Some(_)) | Err(_) => return false,
                Ok(None) => return alive && self.answered && self.wire.is_read(),
            }
        }
    }
}

impl Kept {
    fn idle(&self) -> MutexGuard<'_, Idle> {
        // no code that can panic runs under the lock
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection to this start of the receiver's process, ready for a greeting.
    pub(super) fn take(
        &self,
        endpoint: &str,
        incarnation: &Incarnation,
        now: Instant,
        pace: &Pace,
    ) -> Option<Wire> {
        let mut idle = self.idle();
        let links = idle.links.get_mut(endpoint)?;
        links.retain(|link| link.incarnation == *incarnation && now < link.since + pace.idle);
        while let Some(mut link) = links.pop() {
            if link.is_usable() {
                link.wire.push(Frame::Keep);
                link.wire.renew();
                return Some(link.wire);
            }
        }
        None
    }

    /// One turned out to be dead: others of its time would only be tried in vain.
    pub(super) fn forget(&self, endpoint: &str) {
        self.idle().links.remove(endpoint);
    }

    /// Keeps the connection of a transfer that was committed.
    pub(super) fn put(
        self: &Arc<Self>,
        endpoint: &str,
        incarnation: Incarnation,
        wire: Wire,
        answered: bool,
        pace: &Pace,
    ) {
        let mut idle = self.idle();
        let all: usize = idle.links.values().map(Vec::len).sum();
        let links = idle.links.entry(endpoint.to_owned()).or_default();
        links.retain(|link| link.incarnation == incarnation);
        if all >= MOST || links.len() >= MOST_A_RECEIVER {
            return;
        }
        links.push(KeptLink { wire, incarnation, answered, since: super::driver::now() });
        if !std::mem::replace(&mut idle.swept, true) {
            tokio::spawn(sweep(Arc::downgrade(self), *pace));
        }
    }

    /// Closes what is kept for too long. Says until when there is nothing more to close.
    fn close_old(&self, now: Instant, pace: &Pace) -> Option<Instant> {
        let mut idle = self.idle();
        for links in idle.links.values_mut() {
            links.retain(|link| now < link.since + pace.idle);
        }
        idle.links.retain(|_, links| !links.is_empty());
        let next = idle.links.values().flatten().map(|link| link.since + pace.idle).min();
        idle.swept = next.is_some();
        next
    }
}

/// Runs as long as anything is kept.
async fn sweep(kept: Weak<Kept>, pace: Pace) {
    let mut next = super::driver::now() + pace.idle;
    loop {
        tokio::time::sleep_until(next.into()).await;
        let Some(kept) = kept.upgrade() else { return };
        match kept.close_old(super::driver::now(), &pace) {
            Some(at) => next = at,
            None => return,
        }
    }
}
