//! Who is a member, from what etcd lists and what workers say. Pure: an event goes in, the view changes, and whom to listen to
//! comes out.
//!
//! etcd says where workers are; that one lives, it says itself, over a stream of its own. So etcd adds members and never
//! takes one away: a worker is one from the moment its stream speaks to the moment it ends, and is looked for as long as it is
//! listed. Whatever becomes of etcd, and be it empty, no member is lost that a request could reach.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use proto::v1::{Load, WorkerRecord};

use crate::{Member, View};

/// What has happened.
#[derive(Debug)]
pub(super) enum Event {
    /// etcd lists these and no others.
    Listed(Vec<Arc<WorkerRecord>>),
    /// etcd lists this one.
    Put(Arc<WorkerRecord>),
    /// etcd does not list who has this name.
    Deleted(String),
    /// A worker has said how busy it is.
    Heard { name: String, incarnation: Bytes, load: Load },
    /// A worker can't be heard.
    Silent { name: String, incarnation: Bytes },
}

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    /// Listen to this worker until it is heard no longer, and then try again.
    Follow(Arc<WorkerRecord>),
    /// Listen no longer to whoever was followed under this name.
    Leave(String),
}

/// By name.
#[derive(Debug, Default)]
pub(super) struct Directory {
    known: BTreeMap<String, Known>,
}

#[derive(Debug)]
struct Known {
    record: Arc<WorkerRecord>,
    listed: bool,
    heard: bool,
}

impl Directory {
    /// True: the view has changed.
    pub(super) fn on(&mut self, event: Event, view: &mut View, out: &mut Vec<Action>) -> bool {
        match event {
            Event::Listed(records) => self.list(records, view, out),
            Event::Put(record) => self.put(record, view, out),
            Event::Deleted(name) => self.unlist(&name, view, out),
            Event::Heard { name, incarnation, load } => self.heard(&name, &incarnation, load, view, out),
            Event::Silent { name, incarnation } => self.silent(&name, &incarnation, view, out),
        }
    }

    /// Members that etcd does not list.
    pub(super) fn unlisted(&self) -> usize {
        self.known.values().filter(|known| !known.listed).count()
    }

    fn list(&mut self, records: Vec<Arc<WorkerRecord>>, view: &mut View, out: &mut Vec<Action>) -> bool {
        let names: BTreeSet<String> = records.iter().map(|record| record.name.clone()).collect();
        let gone: Vec<String> = self.known.keys().filter(|name| !names.contains(*name)).cloned().collect();
        let mut changed = false;
        for name in gone {
            changed |= self.unlist(&name, view, out);
        }
        for record in records {
            changed |= self.put(record, view, out);
        }
        changed
    }

    fn put(&mut self, record: Arc<WorkerRecord>, view: &mut View, out: &mut Vec<Action>) -> bool {
        if let Some(known) = self.known.get_mut(&record.name)
            && known.record.incarnation == record.incarnation
        {
            known.listed = true;
            return false;
        }
        // The name belongs to its newest start.
        let changed = self.forget(&record.name, view, out);
        out.push(Action::Follow(Arc::clone(&record)));
        self.known.insert(record.name.clone(), Known { record, listed: true, heard: false });
        changed
    }

    fn unlist(&mut self, name: &str, view: &mut View, out: &mut Vec<Action>) -> bool {
        let Some(known) = self.known.get_mut(name) else { return false };
        known.listed = false;
        let draining = view.get(name).is_some_and(|member| member.load.draining);
        let leaves = draining || !known.heard;
        leaves && self.forget(name, view, out)
    }

    fn heard(
        &mut self,
        name: &str,
        incarnation: &Bytes,
        load: Load,
        view: &mut View,
        out: &mut Vec<Action>,
    ) -> bool {
        let Some(known) = self.of(name, incarnation) else { return false };
        known.heard = true;
        if load.draining && !known.listed {
            return self.forget(name, view, out);
        }
        let member = Member { record: Arc::clone(&known.record), load };
        if view.get(name) == Some(&member) {
            return false;
        }
        view.edit().insert(name.to_owned(), member);
        true
    }

    fn silent(&mut self, name: &str, incarnation: &Bytes, view: &mut View, out: &mut Vec<Action>) -> bool {
        let Some(known) = self.of(name, incarnation) else { return false };
        known.heard = false;
        if !known.listed {
            return self.forget(name, view, out);
        }
        view.edit().remove(name).is_some()
    }

    fn of(&mut self, name: &str, incarnation: &Bytes) -> Option<&mut Known> {
        self.known.get_mut(name).filter(|known| known.record.incarnation == *incarnation)
    }

    fn forget(&mut self, name: &str, view: &mut View, out: &mut Vec<Action>) -> bool {
        if self.known.remove(name).is_none() {
            return false;
        }
        out.push(Action::Leave(name.to_owned()));
        view.get(name).is_some() && view.edit().remove(name).is_some()
    }
}

#[cfg(test)]
mod tests;
