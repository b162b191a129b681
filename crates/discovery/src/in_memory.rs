//! The registry without etcd: a map inside the router.

use proto::v1::{Load, WorkerRecord};
use tokio::sync::watch;

use crate::{Error, Member, Registry, View, complete};

/// The members of one router, in memory. Clones are the same registry.
#[derive(Debug, Clone)]
pub struct InMemory {
    view: watch::Sender<View>,
}

impl Default for InMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl InMemory {
    /// No members.
    pub fn new() -> Self {
        Self { view: watch::Sender::new(View::default()) }
    }

    /// Takes a worker in. Its name belongs to the newest incarnation: an older seat of the same name is void at once.
    pub fn seat(&self, record: WorkerRecord, load: Load) -> Result<Seat, Error> {
        complete(&record)?;
        let seat = Seat {
            view: self.view.clone(),
            name: record.name.clone(),
            incarnation: record.incarnation.to_vec(),
        };
        let member = Member { record: record.into(), load };
        self.view.send_modify(|view| {
            view.edit().insert(seat.name.clone(), member);
        });
        Ok(seat)
    }
}

impl Registry for InMemory {
    fn watch(&self) -> watch::Receiver<View> {
        self.view.subscribe()
    }
}

/// One worker's membership; dropping it ends the membership.
#[derive(Debug)]
pub struct Seat {
    view: watch::Sender<View>,
    name: String,
    incarnation: Vec<u8>,
}

impl Seat {
    /// Replaces the member's load. False: a newer incarnation has taken the name.
    pub fn renew(&self, load: Load) -> bool {
        let mut held = false;
        self.view.send_if_modified(|view| {
            held = self.owns(view);
            let changed = held && view.get(&self.name).is_some_and(|member| member.load != load);
            if changed && let Some(member) = view.edit().get_mut(&self.name) {
                member.load = load;
            }
            changed
        });
        held
    }

    fn owns(&self, view: &View) -> bool {
        view.get(&self.name).is_some_and(|member| member.record.incarnation == self.incarnation)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.view.send_if_modified(|view| {
            let owned = self.owns(view);
            if owned {
                view.edit().remove(&self.name);
            }
            owned
        });
    }
}

#[cfg(test)]
mod tests;
