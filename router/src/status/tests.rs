use std::sync::Arc;
use std::time::Duration;

use discovery::{InMemory, MembershipService, Registry, View};
use net::Traffic;
use proto::v1::{Capacity, Load, Role, Timing, WorkerRecord};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::journal::{Pair, Record, Stage};
use super::snapshot::{RouterState, Seen, Snapshot};
use crate::test_cluster::{CONFIG, Cluster, Ill};
use crate::{Asked, Listeners, Prompt, clients::Client};

fn named(name: &str, role: Role) -> WorkerRecord {
    WorkerRecord {
        name: name.to_owned(),
        role: role.into(),
        incarnation: name.as_bytes().to_vec().into(),
        grpc_address: format!("{name}:7001"),
        fingerprint: Some(proto::v1::Fingerprint::default()),
        layout: Some(proto::v1::Layout::default()),
        capacity: Some(Capacity { pages: 100, page_tokens: 16, slots: 10 }),
        ..WorkerRecord::default()
    }
}

fn record(number: u64, arrived: Instant, stage: Stage) -> Record {
    let pair = |role| Arc::new(named(if role == Role::Prefill { "p0" } else { "d0" }, role));
    Record {
        number,
        id: format!("r{number}"),
        arrived,
        prompt_tokens: 300,
        output_tokens: 12,
        cached_tokens: Some(256),
        migrations: 1,
        workers: Some(Pair { prefill: pair(Role::Prefill), decode: pair(Role::Decode) }),
        stage,
        timing: Timing {
            queue: 0.010,
            prefill: 0.030,
            first_token: 0.042,
            transfer: 0.005,
            ..Timing::default()
        },
        began: Some(arrived + Duration::from_millis(4)),
        committed: true,
    }
}

/// What is said of these, when there are no workers.
fn said_of(running: Vec<Record>, ended: Vec<Record>, now: Instant) -> Value {
    let router = RouterState::default();
    let seen = Seen { router, view: &View::default(), checkpoints: &|_| None, running, ended };
    serde_json::to_value(Snapshot::of(seen, now)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_says_what_the_fleet_has() {
    let registry = InMemory::new();
    let prefill = Load { queued_tokens: 900, tokens_per_second: 3000.0, running: 1, ..Load::default() };
    let decode = Load {
        free_pages: 60,
        free_slots: 7,
        waiting: 2,
        step_seconds: 0.0125,
        draining: true,
        ..Load::default()
    };
    let _seats = [
        registry.seat(named("p0", Role::Prefill), prefill).unwrap(),
        registry.seat(named("d0", Role::Decode), decode).unwrap(),
    ];
    let view = registry.watch().borrow().clone();
    let checkpoints = |record: &WorkerRecord| (record.name == "p0").then_some(17);
    let router = RouterState { model: "demo".to_owned(), unplaced: 1, ..RouterState::default() };
    let (running, ended) = (Vec::new(), Vec::new());
    let seen = Seen { router, view: &view, checkpoints: &checkpoints, running, ended };
    let said = serde_json::to_value(Snapshot::of(seen, Instant::now())).unwrap();

    assert_eq!(said["router"]["unplaced"], 1);
    let [p0, d0] = [&said["prefill"][0], &said["decode"][0]];
    assert_eq!([&p0["name"], &p0["address"]], ["p0", "p0:7001"]);
    assert_eq!([&p0["queued_tokens"], &p0["checkpoints"]], [900, 17]);
    assert_eq!(p0["tokens_per_second"], 3000.0);
    assert_eq!(d0["pages"], json!({ "used": 40, "total": 100 }));
    assert_eq!(d0["slots"], json!({ "used": 3, "total": 10 }));
    assert_eq!(d0["step_ms"], 12.5);
    assert_eq!([&d0["draining"], &d0["checkpoints"]], [&json!(true), &Value::Null]);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_says_how_far_each_request_is() {
    let arrived = Instant::now();
    let at = |ms| arrived + Duration::from_millis(ms);
    let early = Record {
        cached_tokens: None,
        timing: Timing::default(),
        committed: false,
        ..record(2, arrived, Stage::Transferring { since: at(3) })
    };
    let unplaced = Record { number: 3, id: "r3".to_owned(), workers: None, began: None, ..early.clone() };
    let unplaced = Record { stage: Stage::Placing, ..unplaced };
    let ended = |number, ms| {
        let outcome = "finished".to_owned();
        record(number, arrived, Stage::Ended { at: at(ms), outcome })
    };
    let running = vec![record(1, arrived, Stage::Decoding), early, unplaced];
    let said = said_of(running, vec![ended(0, 80), ended(4, 90)], at(100));

    let transfer = json!({
        "number": 2, "request": "r2", "prefill_worker": "p0", "decode_worker": "d0", "age_ms": 97.0,
    });
    assert_eq!(said["transfers"], json!([transfer]));
    let requests = said["requests"].as_array().unwrap();
    let shown: Vec<_> = requests.iter().map(|each| [&each["id"], &each["state"]]).collect();
    let states = ["decoding", "prefilling", "placing", "finished", "finished"];
    let expected = ["r1", "r2", "r3", "r4", "r0"].into_iter().zip(states).map(|(id, state)| [id, state]);
    assert_eq!(json!(shown), json!(expected.collect::<Vec<_>>()));
    let stage = |stage, start: f64, ms: f64| json!({ "stage": stage, "start_ms": start, "ms": ms });
    let whole = |decode| {
        let before = [stage("queue", 0.0, 10.0), stage("prefill", 10.0, 30.0), stage("transfer", 42.0, 5.0)];
        json!([&before[..], &[stage("decode", 47.0, decode)]].concat())
    };
    assert_eq!(requests[0]["waterfall"], whole(53.0));
    assert_eq!(requests[4]["waterfall"], whole(33.0), "it ended then");
    assert_eq!(requests[1]["waterfall"], json!([stage("queue", 0.0, 4.0), stage("prefill", 4.0, 96.0)]));
    assert_eq!(requests[2]["waterfall"], json!([stage("queue", 0.0, 100.0)]));
    assert_eq!(
        [&requests[0]["first_token_ms"], &requests[1]["first_token_ms"]],
        [&json!(42.0), &Value::Null]
    );
}

/// Asks for `path` at `address`; what has come when `enough` says so or nothing more comes.
async fn got(address: std::net::SocketAddr, path: &str, enough: impl Fn(&str) -> bool) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let asked = format!("GET {path} HTTP/1.1\r\nhost: router\r\nconnection: close\r\n\r\n");
    stream.write_all(asked.as_bytes()).await.unwrap();
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let read = timeout(Duration::from_secs(5), stream.read(&mut buffer)).await.unwrap().unwrap();
        answer.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&answer).into_owned();
        if read == 0 || enough(&text) {
            return text;
        }
    }
}

/// The one line of JSON in an answer.
fn json_in(answer: &str) -> Value {
    let line = answer.lines().find(|line| line.trim_start_matches("data: ").starts_with('{')).unwrap();
    serde_json::from_str(line.trim_start_matches("data: ")).unwrap()
}

fn asked(id: &str, max_tokens: u32) -> Asked {
    let sampling = programs::sampling::Asked {
        max_tokens: Some(max_tokens.into()),
        ..programs::sampling::Asked::default()
    };
    Asked {
        request_id: id.to_owned(),
        model: "demo".to_owned(),
        prompt: Prompt::Text("a secret prompt".to_owned()),
        sampling,
        tenant: "a secret tenant".to_owned(),
        ..Asked::default()
    }
}

#[tokio::test]
async fn operators_see_requests_come_move_and_end_at_an_address_of_their_own() {
    let cluster = Cluster::start(CONFIG, 1, 2).await;
    let bound = async || net::system().bind("127.0.0.1:0", Traffic::Public).await.unwrap();
    let (http, status) = (bound().await, bound().await);
    let (clients, operators) = (http.local_addr().unwrap(), status.local_addr().unwrap());
    let listeners = Listeners { grpc: bound().await, http, members: None, status: Some(status) };
    let membership = MembershipService::new(cluster.registry.clone(), Duration::from_secs(1));
    let serving = tokio::spawn(cluster.router.clone().serve(listeners, membership, Duration::from_secs(5)));
    let start = async |id: &str, max_tokens| {
        let arrival = cluster.router.arrival(tracing::Span::none(), Client::Anyone, None);
        cluster.router.generate(asked(id, max_tokens), arrival).await.unwrap()
    };

    let mut finished = start("whole", 4).await;
    while finished.next().await.is_some() {}
    cluster.falls_ill("d0", Ill::Hangs(3));
    cluster.falls_ill("d1", Ill::Hangs(3));
    let mut running = start("running", 9).await;
    running.next().await.unwrap().unwrap();
    running.next().await.unwrap().unwrap();

    let page = got(operators, "/", |_| false).await;
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("default-src 'none'"), "{page}");
    assert!(got(clients, "/status", |_| false).await.starts_with("HTTP/1.1 404"));
    assert!(got(clients, "/", |_| false).await.starts_with("HTTP/1.1 404"));
    let events = got(operators, "/status/events", |text| text.matches("data: ").count() == 2).await;
    let said = json_in(&events);
    assert!(!events.contains("secret"), "{events}");
    assert_eq!(
        (&said["router"]["in_flight"], &said["router"]["outcomes"]),
        (&json!(1), &json!({"finished": 1}))
    );
    let shown: Vec<_> =
        said["requests"].as_array().unwrap().iter().map(|each| [&each["id"], &each["state"]]).collect();
    assert_eq!(json!(shown), json!([["running", "decoding"], ["whole", "finished"]]));
    let whole = &said["requests"][1];
    assert_eq!((&whole["output_tokens"], &whole["prefill_worker"]), (&json!(4), &json!("p0")));
    let stages: Vec<_> = whole["waterfall"].as_array().unwrap().iter().map(|each| &each["stage"]).collect();
    assert_eq!(json!(stages), json!(["queue", "prefill", "transfer", "decode"]));

    drop(running);
    cluster.all_is_free().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let said = json_in(&got(operators, "/status", |_| false).await);
    assert_eq!(said["requests"][0]["state"], "cancelled");
    // Whoever looks does not hold up the router's end.
    let watching = tokio::spawn(got(operators, "/status/events", |_| false));
    tokio::time::sleep(Duration::from_millis(50)).await;
    cluster.drain.begin();
    timeout(Duration::from_secs(3), serving).await.unwrap().unwrap().unwrap();
    assert!(watching.await.unwrap().contains("data: "));
}

#[tokio::test]
async fn the_last_that_ended_are_remembered() {
    let cluster = Cluster::start(CONFIG, 1, 1).await;
    for number in 0..53 {
        let arrival = cluster.router.arrival(tracing::Span::none(), Client::Anyone, None);
        let mut tokens = cluster.router.generate(asked(&format!("r{number}"), 1), arrival).await.unwrap();
        while tokens.next().await.is_some() {}
    }
    let (running, ended) = cluster.router.journal.records();
    assert!(running.is_empty());
    assert_eq!((ended.len(), ended[0].id.as_str(), ended[49].id.as_str()), (50, "r3", "r52"));
}
