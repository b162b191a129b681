use proto::v1::{Fingerprint, Layout, Load, Role, WorkerRecord};

use super::InMemory;
use crate::Registry;

fn record(name: &str, incarnation: &'static [u8]) -> WorkerRecord {
    WorkerRecord {
        name: name.into(),
        role: Role::Decode.into(),
        incarnation: incarnation.into(),
        grpc_address: "127.0.0.1:1".into(),
        fingerprint: Some(Fingerprint::default()),
        layout: Some(Layout::default()),
        ..WorkerRecord::default()
    }
}

#[test]
fn a_name_belongs_to_its_newest_incarnation() {
    let registry = InMemory::new();
    let view = registry.watch();
    let old = registry.seat(record("d0", b"old"), Load::default()).unwrap();
    let new = registry.seat(record("d0", b"new"), Load::default()).unwrap();
    assert!(!old.renew(Load { running: 7, ..Load::default() }));
    drop(old);
    assert!(new.renew(Load { running: 3, ..Load::default() }));
    let member = view.borrow().get("d0").cloned().unwrap();
    assert_eq!((member.load.running, &member.record.incarnation[..]), (3, &b"new"[..]));
    drop(new);
    assert_eq!(view.borrow().members().count(), 0);
}

#[test]
fn draining_members_take_no_work_and_incomplete_records_are_refused() {
    let registry = InMemory::new();
    let seat = registry.seat(record("d0", b"a"), Load::default()).unwrap();
    assert_eq!(registry.watch().borrow().of(Role::Decode).count(), 1);
    assert_eq!(registry.watch().borrow().of(Role::Prefill).count(), 0);
    seat.renew(Load { draining: true, ..Load::default() });
    assert_eq!(registry.watch().borrow().of(Role::Decode).count(), 0);
    let refused = registry.seat(record("", b"a"), Load::default()).unwrap_err();
    assert!(refused.to_string().contains("name"));
}
