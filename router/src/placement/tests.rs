use proto::v1::{Capacity, Fingerprint, Layout, Load, Role, WorkerRecord};

use super::{Avoid, Booked, Candidate, Need, Wanted, choose, serves};
use crate::error::Error;

const NEED: Need = Need { prompt_tokens: 100, total_tokens: 160 };

struct Worker {
    record: WorkerRecord,
    load: Load,
    booked: Booked,
    cached: u32,
}

impl Worker {
    fn candidate(&self) -> Candidate<'_> {
        Candidate { record: &self.record, load: &self.load, booked: self.booked, cached: self.cached }
    }
}

fn worker(role: Role, name: &str) -> Worker {
    let fingerprint =
        Fingerprint { model: "demo".to_owned(), latent_format: "f32".to_owned(), ..Fingerprint::default() };
    let record = WorkerRecord {
        name: name.to_owned(),
        role: role.into(),
        incarnation: name.as_bytes().to_vec().into(),
        fingerprint: Some(fingerprint),
        layout: Some(Layout { heads: 4, ..Layout::default() }),
        capacity: Some(Capacity { pages: 100, page_tokens: 16, slots: 8 }),
        ..WorkerRecord::default()
    };
    let load = Load { free_pages: 100, free_slots: 8, ..Load::default() };
    Worker { record, load, booked: Booked::default(), cached: 0 }
}

fn place_avoiding(workers: &[Worker], avoid: &Avoid) -> Result<(String, String), Error> {
    let candidates: Vec<Candidate<'_>> = workers.iter().map(Worker::candidate).collect();
    let name = |index: usize| workers[index].record.name.clone();
    choose(&Wanted { model: "demo", need: NEED, avoid, like: None }, &candidates)
        .map(|pair| (name(pair.prefill), name(pair.decode)))
}

fn place(workers: &[Worker]) -> (String, String) {
    place_avoiding(workers, &Avoid::default()).unwrap()
}

fn pair(prefill: &str, decode: &str) -> (String, String) {
    (prefill.to_owned(), decode.to_owned())
}

#[test]
fn prefill_goes_where_it_is_done_soonest() {
    let mut fleet =
        vec![worker(Role::Prefill, "p0"), worker(Role::Prefill, "p1"), worker(Role::Decode, "d0")];
    assert_eq!(place(&fleet), pair("p0", "d0"));
    fleet[0].load.tokens_per_second = 100.0;
    fleet[1].load.tokens_per_second = 1000.0;
    fleet[1].load.queued_tokens = 800;
    assert_eq!(place(&fleet), pair("p1", "d0"), "900 tokens at 1000/s end before 100 at 100/s");
    fleet[1].booked.prompt_tokens = 2000;
    assert_eq!(place(&fleet), pair("p0", "d0"), "what is booked counts before it is reported");
    (fleet[0].load.tokens_per_second, fleet[0].load.queued_tokens, fleet[1].cached) = (1000.0, 1950, 90);
    assert_eq!(place(&fleet), pair("p1", "d0"), "what is cached is not computed");
}

#[test]
fn decode_goes_where_most_room_stays_free() {
    let mut fleet = vec![worker(Role::Prefill, "p0"), worker(Role::Decode, "d0"), worker(Role::Decode, "d1")];
    fleet[1].load.free_slots = 3;
    assert_eq!(place(&fleet), pair("p0", "d1"));
    fleet[2].booked = Booked { slots: 6, ..Booked::default() };
    assert_eq!(place(&fleet), pair("p0", "d0"), "two of eight are left after the bookings");
    fleet[1].load.free_pages = 9;
    assert_eq!(place(&fleet), pair("p0", "d1"), "160 tokens need ten pages of 16");
    fleet[2].load.free_slots = 0;
    fleet[1].load.free_slots = 0;
    place(&fleet);
}

#[test]
fn only_workers_that_compute_the_same_are_paired() {
    let mut fleet =
        vec![worker(Role::Prefill, "p0"), worker(Role::Prefill, "p1"), worker(Role::Decode, "d0")];
    let weights = |worker: &mut Worker, digest: &'static [u8]| {
        worker.record.fingerprint.as_mut().unwrap().weights_digest = digest.into();
    };
    weights(&mut fleet[1], b"new");
    weights(&mut fleet[2], b"new");
    assert_eq!(place(&fleet), pair("p1", "d0"));
    fleet.remove(1);
    let refused = place_avoiding(&fleet, &Avoid::default()).unwrap_err();
    assert!(matches!(refused, Error::Mismatch { field: "fingerprint.weights_digest", .. }), "{refused}");
    weights(&mut fleet[1], b"");
    fleet[0].record.layout.as_mut().unwrap().page_tokens = 64;
    assert_eq!(place(&fleet), pair("p0", "d0"), "page lengths may differ");
}

#[test]
fn what_two_workers_differ_in_is_named() {
    type Change = fn(&mut Fingerprint, &mut Layout);
    let changes: [(&str, Change); 8] = [
        ("fingerprint.float_format", |f, _| f.float_format = "bf16".to_owned()),
        ("fingerprint.matrix_format", |f, _| f.matrix_format = "int8".to_owned()),
        ("fingerprint.drafts", |f, l| (f.drafts, l.hidden) = (true, 8)),
        ("fingerprint.latent_format", |f, _| f.latent_format = "bf16".to_owned()),
        ("layout.heads", |_, l| l.heads = 5),
        ("layout.index_dim", |_, l| l.index_dim = 8),
        ("layout.index_pool", |_, l| l.index_pool = 4),
        ("layout.hidden", |_, l| l.hidden = 8),
    ];
    for (name, change) in changes {
        let mut fleet = [worker(Role::Prefill, "p0"), worker(Role::Decode, "d0")];
        let WorkerRecord { fingerprint, layout, .. } = &mut fleet[0].record;
        change(fingerprint.as_mut().unwrap(), layout.as_mut().unwrap());
        let refused = place_avoiding(&fleet, &Avoid::default()).unwrap_err();
        assert!(matches!(refused, Error::Mismatch { field, .. } if field == name), "{refused}");
    }
}

#[test]
fn a_failed_worker_is_the_last_choice_and_a_dead_one_none() {
    let fleet = [worker(Role::Prefill, "p0"), worker(Role::Decode, "d0"), worker(Role::Decode, "d1")];
    let incarnation = |index: usize| vec![fleet[index].record.incarnation.clone()];
    let tried = Avoid { tried: [incarnation(0), incarnation(1)].concat(), ..Avoid::default() };
    assert_eq!(place_avoiding(&fleet, &tried).unwrap(), pair("p0", "d1"));
    let lost = Avoid { lost: incarnation(0), ..Avoid::default() };
    let refused = place_avoiding(&fleet, &lost).unwrap_err();
    assert!(matches!(refused, Error::NoWorker { role: Role::Prefill, .. }), "{refused}");
}

#[test]
fn an_output_is_continued_by_its_own_kind_alone() {
    let mut fleet = vec![worker(Role::Prefill, "p0"), worker(Role::Decode, "d0")];
    let first = fleet[0].record.fingerprint.clone().unwrap();
    let resume = |fleet: &[Worker]| {
        let candidates: Vec<Candidate<'_>> = fleet.iter().map(Worker::candidate).collect();
        let avoid = Avoid::default();
        choose(&Wanted { model: "demo", need: NEED, avoid: &avoid, like: Some(&first) }, &candidates)
    };
    assert!(resume(&fleet).is_ok());
    for worker in &mut fleet {
        worker.record.fingerprint.as_mut().unwrap().weights_digest = b"new"[..].into();
    }
    assert_eq!(place(&fleet), pair("p0", "d0"), "what begins now may go there");
    assert!(matches!(resume(&fleet), Err(Error::NoWorker { .. })));
}

#[test]
fn draining_workers_and_other_models_do_not_count() {
    let mut fleet = vec![worker(Role::Prefill, "p0"), worker(Role::Decode, "d0")];
    fleet[1].load.draining = true;
    assert!(matches!(
        place_avoiding(&fleet, &Avoid::default()),
        Err(Error::NoWorker { role: Role::Decode, .. })
    ));
    let candidates: Vec<Candidate<'_>> = fleet.iter().map(Worker::candidate).collect();
    assert!(!serves("demo", &candidates));
    assert!(!serves("other", &candidates));
}
