//! The router's side.

use std::collections::HashMap;

use net::Network;
use tokio::{
    sync::{mpsc, watch},
    task::AbortHandle,
    time::Instant,
};

use super::{
    Etcd,
    directory::{Action, Directory, Event},
    listing::Listing,
    worker,
};
use crate::{Registry, View};

/// Whether etcd answers.
#[derive(Debug, Clone)]
pub enum Contact {
    /// It does: who joins is seen.
    Here,
    /// It does not: members are as they were, and whoever joins is not seen.
    Away {
        /// The last answer, or the start.
        since: Instant,
        /// What was tried last, and what came of it.
        reason: String,
    },
}

/// The members in etcd, as they come and go, for as long as this lives.
#[derive(Debug)]
pub struct Following {
    view: watch::Receiver<View>,
    contact: watch::Receiver<Contact>,
    _tasks: [Task; 2],
}

impl Etcd {
    /// Reads etcd, and listens to the workers that it lists over `network`. Must be called inside the runtime.
    pub fn follow(self, network: Network) -> Following {
        let (view, seen) = watch::channel(View::default());
        let away = Contact::Away { since: Instant::now(), reason: "not reached yet".to_owned() };
        let (contact, heard) = watch::channel(away);
        let (sender, events) = mpsc::channel(256);
        let listing = Listing::new(self.clone(), sender.clone(), contact);
        let owner = Owner { etcd: self, network, sender, following: HashMap::new() };
        let tasks = [Task::spawn(listing.run()), Task::spawn(owner.run(events, view))];
        Following { view: seen, contact: heard, _tasks: tasks }
    }
}

impl Following {
    /// Whether etcd answers now, and every change of that.
    pub fn contact(&self) -> watch::Receiver<Contact> {
        self.contact.clone()
    }
}

impl Registry for Following {
    fn watch(&self) -> watch::Receiver<View> {
        self.view.clone()
    }
}

/// Whoever alone changes the view.
struct Owner {
    etcd: Etcd,
    network: Network,
    sender: mpsc::Sender<Event>,
    following: HashMap<String, Task>,
}

impl Owner {
    async fn run(mut self, mut events: mpsc::Receiver<Event>, view: watch::Sender<View>) {
        let (mut directory, mut actions) = (Directory::default(), Vec::new());
        while let Some(event) = events.recv().await {
            view.send_if_modified(|view| directory.on(event, view, &mut actions));
            self.etcd.metrics.unlisted.set(i64::try_from(directory.unlisted()).unwrap_or(i64::MAX));
            for action in actions.drain(..) {
                self.act(action);
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Follow(record) => {
                let name = record.name.clone();
                let backoff = self.etcd.backoff(worker::LONGEST_PAUSE);
                let listening = worker::follow(record, self.network.clone(), backoff, self.sender.clone());
                self.following.insert(name, Task::spawn(listening));
            }
            Action::Leave(name) => drop(self.following.remove(&name)),
        }
    }
}

/// A task that ends when this is dropped.
#[derive(Debug)]
struct Task(AbortHandle);

impl Task {
    fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(task).abort_handle())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
