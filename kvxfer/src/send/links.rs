use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::SendAction;
use crate::frame::Frame;
use crate::pace::Pace;
use crate::segment::SEGMENT_BYTES;
use crate::ticket::LinkId;

/// Times that every link may be lost before something is acknowledged again; one that stalled counts twice.
const MOST_LOST: u32 = 4;
/// Links dialled for one transfer, however well it goes in between.
const MOST_DIALLED: u16 = 256;
/// Payload bytes that a link is given before it has written what it has.
const QUEUED: u64 = 2 * SEGMENT_BYTES;
/// Before the second replacement in a row; doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// A sender's connections: those that are up, and when to replace one that is not.
#[derive(Debug)]
pub(super) struct Links {
    up: BTreeMap<LinkId, Link>,
    wanted: u16,
    /// Asked for and neither up nor failed.
    dialling: u16,
    next: u16,
    dial_at: Option<Instant>,
    lost: u32,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) heard: Instant,
    pub(super) said: Instant,
    /// It served an earlier transfer.
    kept: bool,
    pub(super) welcomed: bool,
    /// Payload bytes that may be unacknowledged on it.
    window: u64,
    unacked: u64,
    /// Payload bytes given to it since it last had nothing to write.
    queued: u64,
    pub(super) has_commit: bool,
}

impl Link {
    fn free(&self) -> u64 {
        self.window.saturating_sub(self.unacked)
    }

    fn is_stale(&self) -> bool {
        self.kept && !self.welcomed
    }

    /// How long it may say nothing.
    fn patience(&self, pace: &Pace) -> Duration {
        if self.is_stale() { pace.kept } else { pace.stall }
    }

    /// Written out, nearly: several segments leave in one call, and are still in the cache that their digests filled.
    fn idle(&self) -> bool {
        self.queued < QUEUED
    }
}

impl Links {
    pub(super) fn new(wanted: u16, now: Instant) -> Links {
        Links { up: BTreeMap::new(), wanted, dialling: 0, next: 0, dial_at: Some(now), lost: 0 }
    }

    pub(super) fn get(&mut self, id: LinkId) -> Option<&mut Link> {
        self.up.get_mut(&id)
    }

    pub(super) fn ids(&self) -> Vec<LinkId> {
        self.up.keys().copied().collect()
    }

    /// Connects what is missing, if it is time.
    pub(super) fn dial(&mut self, now: Instant, out: &mut Vec<SendAction>) {
        if self.dial_at.is_none_or(|at| now < at) {
            return;
        }
        self.dial_at = None;
        while self.up.len() + usize::from(self.dialling) < self.wanted.into() && self.next < MOST_DIALLED {
            out.push(SendAction::Dial(LinkId(self.next)));
            self.next += 1;
            self.dialling += 1;
        }
    }

    pub(super) fn dialled(&mut self, id: LinkId, kept: bool, now: Instant) {
        self.dialling = self.dialling.saturating_sub(1);
        let link = Link {
            heard: now,
            said: now,
            kept,
            welcomed: false,
            window: 0,
            unacked: 0,
            queued: 0,
            has_commit: false,
        };
        self.up.insert(id, link);
    }

    /// A link is gone, or never came up. Says whether that was one too many.
    pub(super) fn lose(&mut self, id: LinkId, weight: u32, now: Instant) -> bool {
        if self.up.remove(&id).is_none() {
            self.dialling = self.dialling.saturating_sub(1);
        }
        self.lost += weight;
        let times = self.lost / u32::from(self.wanted);
        let wait = match times {
            0 | 1 => Duration::ZERO,
            more => FIRST_WAIT * 2u32.saturating_pow(more.min(8) - 2),
        };
        let at = now + wait;
        self.dial_at = Some(self.dial_at.map_or(at, |earlier| earlier.min(at)));
        let none = self.up.is_empty() && self.dialling == 0;
        (times >= MOST_LOST && self.up.is_empty()) || (none && self.next >= MOST_DIALLED)
    }

    /// Whether it served an earlier transfer and has not answered since.
    pub(super) fn is_stale(&self, id: LinkId) -> bool {
        self.up.get(&id).is_some_and(Link::is_stale)
    }

    /// Something went right.
    pub(super) fn progressed(&mut self) {
        self.lost = 0;
    }

    pub(super) fn grant(&mut self, id: LinkId, window: u64) {
        if let Some(link) = self.up.get_mut(&id) {
            link.window = window;
        }
    }

    pub(super) fn written(&mut self, id: LinkId) {
        if let Some(link) = self.up.get_mut(&id) {
            link.queued = 0;
        }
    }

    pub(super) fn acked(&mut self, id: LinkId, bytes: u64) {
        if let Some(link) = self.up.get_mut(&id) {
            link.unacked -= bytes;
        }
    }

    /// Whether a link has credit and nothing to write.
    pub(super) fn any_idle(&self) -> bool {
        self.up.values().any(|link| link.idle() && link.free() > 0)
    }

    /// Takes the credit for a segment of so many bytes from the idle link that has most of it: slow links get less.
    pub(super) fn take(&mut self, bytes: u64) -> Option<LinkId> {
        let fitting = self.up.iter_mut().filter(|(_, link)| link.idle() && link.free() >= bytes.max(1));
        let (id, link) = fitting.max_by_key(|(_, link)| link.free())?;
        link.unacked += bytes;
        link.queued += bytes;
        Some(*id)
    }

    /// A link that the receiver has accepted, to ask for the verdict on; none while one is asked already.
    pub(super) fn ask(&mut self) -> Option<LinkId> {
        if self.up.values().any(|link| link.has_commit) {
            return None;
        }
        let (id, link) = self.up.iter_mut().find(|(_, link)| link.welcomed)?;
        link.has_commit = true;
        Some(*id)
    }

    pub(super) fn deadline(&self, pace: &Pace) -> Option<Instant> {
        let each =
            self.up.values().map(|link| (link.heard + link.patience(pace)).min(link.said + pace.heartbeat));
        each.chain(self.dial_at).min()
    }

    /// Heartbeats on links that have said nothing for a while; gives out those that heard nothing for too long.
    pub(super) fn tick(&mut self, pace: &Pace, now: Instant, out: &mut Vec<SendAction>) -> Vec<LinkId> {
        let mut stalled = Vec::new();
        for (&id, link) in &mut self.up {
            if now >= link.heard + link.patience(pace) {
                stalled.push(id);
            } else if now >= link.said + pace.heartbeat {
                out.push(SendAction::Write(id, Frame::Heartbeat));
            }
        }
        stalled
    }
}
