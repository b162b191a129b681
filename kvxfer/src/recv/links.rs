use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::RecvAction;
use crate::frame::Frame;
use crate::pace::Pace;
use crate::ticket::LinkId;

/// A receiver's connections to one sender.
#[derive(Debug)]
pub(super) struct Links {
    up: BTreeMap<LinkId, Link>,
    /// Numbers that were ever greeted with; a greeting recorded and played again is none of ours.
    used: BTreeSet<LinkId>,
    most: u16,
    /// Acknowledgements that were not written before their link was lost; the next link brings them.
    orphans: Vec<u32>,
    /// Since when there is none.
    none_since: Option<Instant>,
}

#[derive(Debug)]
struct Link {
    heard: Instant,
    said: Instant,
    /// Payload bytes that may be unacknowledged on it, once it was told so.
    window: Option<u64>,
    /// Acknowledgements not yet written: a sender needs them for its credit, and to be woken for each would cost it.
    acks: Vec<u32>,
    acked_bytes: u64,
}

/// A share of the window, and a number of segments, that the sender is told of at once.
const ACK_SHARE: u64 = 4;
const MOST_ACKS: usize = 256;

impl Link {
    /// Writes the acknowledgements that wait; says whether there were any.
    fn flush(&mut self, id: LinkId, out: &mut Vec<RecvAction>) -> bool {
        let any = !self.acks.is_empty();
        out.extend(self.acks.drain(..).map(|sequence| RecvAction::Write(id, Frame::Ack { sequence })));
        self.acked_bytes = 0;
        any
    }
}

impl Links {
    pub(super) fn new(most: u16, now: Instant) -> Links {
        Links { up: BTreeMap::new(), used: BTreeSet::new(), most, orphans: Vec::new(), none_since: Some(now) }
    }

    /// Whether the link is new, and not one too many.
    pub(super) fn may_join(&self, id: LinkId) -> bool {
        self.up.len() < self.most.into() && !self.used.contains(&id)
    }

    pub(super) fn join(&mut self, id: LinkId, now: Instant) {
        self.used.insert(id);
        self.up.insert(id, Link { heard: now, said: now, window: None, acks: Vec::new(), acked_bytes: 0 });
        self.none_since = None;
    }

    pub(super) fn lose(&mut self, id: LinkId, now: Instant) {
        if let Some(link) = self.up.remove(&id) {
            self.orphans.extend(link.acks);
            if self.up.is_empty() {
                self.none_since = Some(now);
            }
        }
    }

    pub(super) fn heard(&mut self, id: LinkId, now: Instant) {
        if let Some(link) = self.up.get_mut(&id) {
            link.heard = now;
        }
    }

    pub(super) fn said(&mut self, id: LinkId, now: Instant) {
        if let Some(link) = self.up.get_mut(&id) {
            link.said = now;
        }
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = LinkId> {
        self.up.keys().copied()
    }

    pub(super) fn has(&self, id: LinkId) -> bool {
        self.up.contains_key(&id)
    }

    /// What this link may have unacknowledged.
    pub(super) fn window(&self, id: LinkId) -> u64 {
        self.up.get(&id).and_then(|link| link.window).unwrap_or(0)
    }

    /// Bytes that have been granted to links that are up.
    pub(super) fn granted(&self) -> u64 {
        self.up.values().filter_map(|link| link.window).sum()
    }

    /// Acknowledges on any link what a lost one still had to.
    pub(super) fn adopt(&mut self, out: &mut Vec<RecvAction>) {
        if let Some(&id) = self.up.keys().next_back() {
            out.extend(self.orphans.drain(..).map(|sequence| RecvAction::Write(id, Frame::Ack { sequence })));
        }
    }

    /// Gives every link its window, as far as `room` bytes go.
    pub(super) fn grant(&mut self, window: u64, mut room: u64, out: &mut Vec<RecvAction>) {
        for (&id, link) in &mut self.up {
            if link.window.is_none() && window <= room {
                room -= window;
                link.window = Some(window);
                out.push(RecvAction::Write(id, Frame::Credit { window }));
            }
        }
    }

    /// Acknowledges a segment, with others.
    pub(super) fn ack(&mut self, id: LinkId, sequence: u32, bytes: u64, out: &mut Vec<RecvAction>) {
        let Some(link) = self.up.get_mut(&id) else { return };
        link.acks.push(sequence);
        link.acked_bytes += bytes;
        let share = link.window.unwrap_or(0) / ACK_SHARE;
        if link.acked_bytes >= share || link.acks.len() >= MOST_ACKS {
            link.flush(id, out);
        }
    }

    /// Without any link for too long.
    pub(super) fn deserted(&self, pace: &Pace, now: Instant) -> bool {
        self.none_since.is_some_and(|since| now >= since + pace.relink)
    }

    pub(super) fn deadline(&self, pace: &Pace) -> Option<Instant> {
        let each = self.up.values().map(|link| (link.heard + pace.stall).min(link.said + pace.heartbeat));
        each.chain(self.none_since.map(|since| since + pace.relink)).min()
    }

    /// Heartbeats on links that have said nothing for a while; gives out those that heard nothing for too long.
    pub(super) fn tick(&mut self, pace: &Pace, now: Instant, out: &mut Vec<RecvAction>) -> Vec<LinkId> {
        let mut stalled = Vec::new();
        for (&id, link) in &mut self.up {
            if now >= link.heard + pace.stall {
                stalled.push(id);
            } else if now >= link.said + pace.heartbeat && !link.flush(id, out) {
                out.push(RecvAction::Write(id, Frame::Heartbeat));
            }
        }
        stalled
    }
}
