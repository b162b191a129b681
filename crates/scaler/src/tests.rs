use std::collections::BTreeMap;

use super::*;

fn metadata(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn scaler(pairs: &[(&str, &str)]) -> Scaler {
    Scaler::new(Settings::parse(&metadata(pairs)).unwrap())
}

/// A role's workers, each second, as an autoscaler would have them that does what it is told after `lead` seconds.
struct Cluster {
    scaler: Scaler,
    began: Instant,
    seconds: u64,
    workers: u32,
    lead: u64,
    ordered: Vec<(u64, u32)>,
    actions: u32,
}

impl Cluster {
    fn new(scaler: Scaler, workers: u32, lead: u64) -> Self {
        Self { scaler, began: Instant::now(), seconds: 0, workers, lead, ordered: Vec::new(), actions: 0 }
    }

    fn run(&mut self, seconds: u64, load: impl Fn(u64, u32) -> Load) {
        for _ in 0..seconds {
            self.seconds += 1;
            let now = self.began + Duration::from_secs(self.seconds);
            while self.ordered.first().is_some_and(|(at, _)| *at <= self.seconds) {
                self.workers = self.ordered.remove(0).1;
            }
            self.scaler.observe(load(self.seconds, self.workers), now);
            let told = self.scaler.answer().workers;
            if told != self.ordered.last().map_or(self.workers, |(_, workers)| *workers) {
                self.actions += 1;
                self.ordered.push((self.seconds + self.lead, told));
            }
        }
    }
}

fn prefill(workers: u32, busy: u32, tokens: u64) -> Load {
    Load::Prefill(PrefillLoad { workers, busy, tokens, tokens_per_second: 1000.0, sequences: 0 })
}

fn decode(workers: u32, sequences: u64) -> Load {
    Load::Decode(DecodeLoad { workers, sequences, slots: 10, pages: 0.0, itl: 0.02 })
}

#[test]
fn a_backlog_asks_for_workers_at_once_and_is_forgotten_slowly() {
    let mut cluster = Cluster::new(scaler(&[("role", "prefill"), ("holdSeconds", "60")]), 1, 0);
    cluster.run(1, |_, workers| prefill(workers, 1, 7000));
    assert_eq!(cluster.scaler.answer(), Answer { workers: 5, active: true });
    cluster.run(55, |_, workers| prefill(workers, 0, 0));
    assert_eq!(cluster.workers, 5, "within the hold nobody goes");
    cluster.run(10, |_, workers| prefill(workers, 0, 0));
    assert!(cluster.workers < 5);
    cluster.run(120, |_, workers| prefill(workers, 0, 0));
    assert_eq!((cluster.workers, cluster.scaler.answer().active), (0, false));
    cluster.run(1, |_, workers| prefill(workers, 0, 200));
    assert_eq!(cluster.scaler.answer(), Answer { workers: 1, active: true }, "from none to one");
}

#[test]
fn constant_load_is_left_alone() {
    // Three and a half workers' worth, in waves that prompts make.
    let busy = |second: u64, workers: u32| (if second.is_multiple_of(2) { 3 } else { 4 }).min(workers);
    for start in [1, 3, 5, 9] {
        let mut cluster = Cluster::new(scaler(&[("role", "prefill")]), start, 20);
        cluster.run(900, |second, workers| prefill(workers, busy(second, workers), 2000));
        assert_eq!(cluster.workers, 5, "from {start}");
        let before = cluster.actions;
        cluster.run(1800, |second, workers| prefill(workers, busy(second, workers), 2000));
        assert!(cluster.actions - before <= 1, "from {start}: {} more actions", cluster.actions - before);
    }
    let waves = |second: u64| 30 + second % 7;
    let mut cluster = Cluster::new(scaler(&[("role", "decode")]), 2, 20);
    cluster.run(900, |second, workers| decode(workers, waves(second)));
    let (before, settled) = (cluster.actions, cluster.workers);
    cluster.run(1800, |second, workers| decode(workers, waves(second)));
    assert!(
        cluster.actions - before <= 1 && settled == 5,
        "{settled} workers, {} actions",
        cluster.actions - before
    );
}

#[test]
fn a_scaler_that_begins_keeps_who_is_there() {
    let mut cluster = Cluster::new(scaler(&[("role", "decode"), ("holdSeconds", "100")]), 6, 0);
    cluster.run(90, |_, workers| decode(workers, 0));
    assert_eq!((cluster.workers, cluster.scaler.answer().active), (6, true));
    cluster.run(120, |_, workers| decode(workers, 0));
    assert_eq!((cluster.workers, cluster.scaler.answer().active), (0, false));
    let none = scaler(&[("role", "decode")]);
    let mut cluster = Cluster::new(none, 0, 0);
    cluster.run(1, |_, workers| decode(workers, 0));
    assert_eq!(cluster.scaler.answer(), Answer::default());
}

#[test]
fn prompts_too_short_to_be_seen_keep_a_worker() {
    let mut cluster = Cluster::new(scaler(&[("role", "prefill"), ("holdSeconds", "30")]), 1, 0);
    let between_looks =
        |sequences| Load::Prefill(PrefillLoad { workers: 1, sequences, ..PrefillLoad::default() });
    cluster.run(300, |second, _| between_looks(u64::from(second.is_multiple_of(9))));
    assert_eq!((cluster.scaler.answer(), cluster.actions), (Answer { workers: 1, active: true }, 0));
    cluster.run(60, |_, _| between_looks(0));
    assert_eq!(cluster.scaler.answer(), Answer::default());
}

#[test]
fn nobody_goes_who_would_be_called_back() {
    let mut cluster = Cluster::new(scaler(&[("role", "decode"), ("holdSeconds", "0")]), 4, 0);
    cluster.run(300, |_, workers| decode(workers, 24));
    assert_eq!(cluster.workers, 4, "three could hold 24 sequences at their target, and not one more");
    cluster.run(300, |_, workers| decode(workers, 21));
    assert_eq!(cluster.workers, 3);
}

#[test]
fn decode_counts_rooms_pages_and_time() {
    let load = DecodeLoad { workers: 4, sequences: 4, slots: 10, pages: 0.1, itl: 0.02 };
    let needs = |pairs: &[(&str, &str)], load: DecodeLoad| {
        let mut scaler = scaler(&[&[("role", "decode"), ("holdSeconds", "0")], pairs].concat());
        let began = Instant::now();
        for second in 0..200 {
            scaler.observe(Load::Decode(load), began + Duration::from_secs(second));
        }
        scaler.answer().workers
    };
    assert_eq!(needs(&[], load), 1);
    assert_eq!(needs(&[("spares", "2")], load), 3);
    assert_eq!(needs(&[], DecodeLoad { sequences: 70, ..load }), 9);
    assert_eq!(needs(&[], DecodeLoad { pages: 0.9, ..load }), 5);
    assert_eq!(needs(&[("itlMillis", "25")], load), 1);
    assert_eq!(needs(&[("itlMillis", "15")], load), 6);
    assert_eq!(needs(&[], DecodeLoad { workers: 0, slots: 0, sequences: 20, ..load }), 2, "nobody to ask");
}

#[test]
fn metadata_that_is_not_understood_is_refused_by_key() {
    let refused = |pairs: &[(&str, &str)]| Settings::parse(&metadata(pairs)).unwrap_err().key;
    assert_eq!(refused(&[]), "role");
    assert_eq!(refused(&[("role", "both")]), "role");
    let (p, d) = (("role", "prefill"), ("role", "decode"));
    for (role, key, value) in [
        (p, "waitSeconds", "0"),
        (p, "waitSeconds", "soon"),
        (p, "waitSeconds", "NaN"),
        (p, "busy", "1.5"),
        (p, "itlMillis", "20"),
        (d, "rooms", "-0.1"),
        (d, "itlMillis", "inf"),
        (d, "busy", "0.5"),
        (d, "windowSeconds", "0"),
        (d, "holdSeconds", "-1"),
        (d, "spares", "1.5"),
        (d, "spare", "1"),
    ] {
        assert_eq!(refused(&[role, (key, value)]), key, "{value}");
    }
    let own = [p, ("scalerAddress", "router:50051"), ("caCert", "..."), ("holdSeconds", "0"), ("busy", "1")];
    assert!(Settings::parse(&metadata(&own)).is_ok());
}
