#![allow(clippy::print_stderr, unreachable_pub, dead_code)]

use std::sync::Arc;

use process::Random;
use proto::v1::{Fingerprint, Layout, WorkerRecord};
use telemetry::Meters;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use super::{Event, Listing, Outdated};
use crate::{Contact, Etcd, EtcdFlags};

#[path = "../../../tests/registries/server.rs"]
mod server;

fn listing(server: &server::Server) -> (Listing, mpsc::Receiver<Event>) {
    let flags = EtcdFlags { etcd: vec![server.url()], etcd_prefix: "/t".to_owned(), ..EtcdFlags::default() };
    let etcd = Etcd::new(&flags, Random::system(), &Meters::new()).unwrap().unwrap();
    let (events, heard) = mpsc::channel(16);
    let away = Contact::Away { since: Instant::now(), reason: String::new() };
    (Listing::new(etcd, events, watch::channel(away).0), heard)
}

fn record(name: &str) -> WorkerRecord {
    WorkerRecord {
        name: name.to_owned(),
        incarnation: vec![7].into(),
        grpc_address: "a:1".to_owned(),
        fingerprint: Some(Fingerprint::default()),
        layout: Some(Layout::default()),
        ..WorkerRecord::default()
    }
}

#[tokio::test]
async fn a_history_that_does_not_go_on_from_the_list_is_listed_again() {
    let server = server::Server::start();
    let (mut listing, mut heard) = listing(&server);
    let mut client = listing.etcd.settings.connect(&server.url()).await.unwrap();
    let before = client.get("none", None).await.unwrap().header().unwrap().revision();
    let value = listing.etcd.format.write(&record("a")).unwrap();
    for _ in 0..5 {
        client.put("/t/workers/a", value.as_slice(), None).await.unwrap();
    }
    client.put("/t/workers/b", value.as_slice(), None).await.unwrap();
    client.compact(before + 3, None).await.unwrap();
    let Outdated(why) = listing.watch(&mut client, before).await.unwrap();
    assert!(why.contains("compacted"), "{why}");
    let revision = listing.list(&mut client).await.unwrap();
    let Some(Event::Listed(records)) = heard.recv().await else { panic!("no list") };
    assert_eq!((revision, records), (before + 6, vec![Arc::new(record("a"))]));
    let Outdated(why) = listing.watch(&mut client, revision + 1000).await.unwrap();
    assert!(why.contains("another"), "{why}");
}
