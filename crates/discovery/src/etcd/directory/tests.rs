use std::sync::Arc;

use bytes::Bytes;
use proto::v1::{Load, WorkerRecord};

use super::{Action, Directory, Event};
use crate::View;

#[derive(Default)]
struct Scene {
    directory: Directory,
    view: View,
    actions: Vec<Action>,
}

impl Scene {
    fn on(&mut self, event: Event) -> bool {
        self.directory.on(event, &mut self.view, &mut self.actions)
    }

    fn hears(&mut self, name: &str, incarnation: &'static str, load: Load) -> bool {
        self.on(Event::Heard { name: name.to_owned(), incarnation: incarnation.into(), load })
    }

    fn loses(&mut self, name: &str, incarnation: &'static str) -> bool {
        self.on(Event::Silent { name: name.to_owned(), incarnation: incarnation.into() })
    }

    fn members(&self) -> Vec<(&str, &[u8])> {
        let members = self.view.members();
        members.map(|member| (member.record.name.as_str(), &member.record.incarnation[..])).collect()
    }

    fn left(&self) -> Vec<&str> {
        self.actions
            .iter()
            .filter_map(|action| match action {
                Action::Leave(name) => Some(name.as_str()),
                Action::Follow(_) => None,
            })
            .collect()
    }
}

fn record(name: &str, incarnation: &'static str) -> Arc<WorkerRecord> {
    let incarnation = Bytes::from(incarnation);
    Arc::new(WorkerRecord { name: name.into(), incarnation, ..WorkerRecord::default() })
}

fn draining() -> Load {
    Load { draining: true, ..Load::default() }
}

#[test]
fn a_worker_is_a_member_while_it_answers_whatever_etcd_lists() {
    let mut scene = Scene::default();
    assert!(!scene.on(Event::Listed(vec![record("a", "1"), record("b", "1")])));
    assert!(scene.members().is_empty(), "nobody has said how busy it is");
    assert!(scene.hears("a", "1", Load::default()));
    assert!(scene.hears("b", "1", Load::default()));
    assert!(!scene.hears("b", "1", Load::default()), "nothing new");

    assert!(!scene.on(Event::Listed(vec![])), "an empty etcd takes nobody away");
    assert!(!scene.on(Event::Deleted("a".into())));
    assert_eq!((scene.members().len(), scene.directory.unlisted()), (2, 2));
    assert!(!scene.on(Event::Put(record("a", "1"))), "who registers again is who it was");
    assert_eq!(scene.actions.len(), 2, "each is followed once: {:?}", scene.actions);

    assert!(scene.loses("a", "1"));
    assert!(scene.hears("a", "1", Load::default()), "it is listed, so it was tried again");
    assert!(scene.loses("b", "1"), "it is not: nobody knows of it any more");
    assert!(!scene.hears("b", "1", Load::default()));
    assert_eq!((scene.members(), scene.left()), (vec![("a", &b"1"[..])], vec!["b"]));
}

#[test]
fn a_name_belongs_to_the_start_that_etcd_lists() {
    let mut scene = Scene::default();
    scene.on(Event::Put(record("a", "old")));
    scene.hears("a", "old", Load::default());
    assert!(scene.on(Event::Put(record("a", "new"))), "the old one is out at once");
    assert!(scene.hears("a", "new", Load::default()));
    assert!(!scene.hears("a", "old", Load { running: 7, ..Load::default() }), "a late word");
    assert!(!scene.loses("a", "old"));
    assert_eq!((scene.members(), scene.left()), (vec![("a", &b"new"[..])], vec!["a"]));
}

#[test]
fn who_drains_and_leaves_etcd_is_out_in_either_order() {
    let mut scene = Scene::default();
    for (name, incarnation) in [("a", "1"), ("b", "2")] {
        scene.on(Event::Put(record(name, incarnation)));
        scene.hears(name, incarnation, Load::default());
    }
    assert!(scene.hears("a", "1", draining()));
    assert_eq!(scene.members().len(), 2, "it is still there for what it has");
    assert!(scene.on(Event::Deleted("a".into())));
    assert!(!scene.on(Event::Deleted("b".into())));
    assert!(scene.hears("b", "2", draining()));
    assert!(scene.members().is_empty());
    assert_eq!(scene.left(), ["a", "b"]);
}
