//! What only etcd can do to a cluster.

use std::{path::Path, time::Duration};

use discovery::{Announce, EtcdFlags, View};
use etcd_client::{Client, GetOptions, Permission, PermissionType};
use nix::sys::signal::Signal;
use proto::v1::Role;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use telemetry::Meters;
use tokio::time::{Instant, sleep};

use crate::{
    benches::{Bench, Outside, Router, etcd, flags},
    is, names, running,
    server::Server,
    until,
    workers::Worker,
};

async fn client(server: &Server) -> Client {
    Client::connect([server.url()], None).await.unwrap()
}

/// Keys below the prefix.
async fn keys(client: &mut Client) -> Vec<String> {
    let all = GetOptions::new().with_prefix().with_keys_only();
    let found = client.get("/tandem/", Some(all)).await.unwrap();
    found.kvs().iter().map(|entry| entry.key_str().unwrap().to_owned()).collect()
}

async fn soon(what: &str, right: impl Fn() -> bool) {
    let begun = Instant::now();
    while !right() {
        assert!(begun.elapsed() < Duration::from_secs(15), "never: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// The view may change, but these stay in it for as long as `during` takes.
async fn keeps<T>(bench: &Outside, workers: [&Worker; 2], during: impl Future<Output = T>) -> T {
    let mut view = bench.view();
    let all = |view: &View| is(view, "d0", workers[0]) && is(view, "p0", workers[1]);
    let lost = async {
        let _ = view.wait_for(|view| !all(view)).await;
    };
    tokio::select! {
        done = during => done,
        () = lost => panic!("a member was lost: {:?}", *bench.view().borrow()),
    }
}

async fn pair(bench: &Outside) -> (Worker, Worker) {
    let decode = Worker::start("d0", Role::Decode, running(1), bench.announce());
    let prefill = Worker::start("p0", Role::Prefill, running(1), bench.announce());
    until(&mut bench.view(), 10, |view| is(view, "d0", &decode) && is(view, "p0", &prefill)).await;
    (decode, prefill)
}

#[tokio::test]
async fn a_silent_a_dead_and_an_empty_etcd_cost_no_member() {
    let mut bench = Outside::new();
    let (decode, prefill) = pair(&bench).await;
    let second = Router::of(&bench.flags);
    until(&mut second.view(), 10, |view| names(view) == ["d0", "p0"]).await;

    bench.server.signal(Signal::SIGSTOP);
    keeps(&bench, [&decode, &prefill], soon("silence is noticed", || bench.router.is_away())).await;
    assert_eq!(bench.router.metric("tandem_discovery_connected"), 0);
    decode.says(running(5));
    until(&mut bench.view(), 2, |view| view.get("d0").unwrap().load == running(5)).await;
    bench.server.signal(Signal::SIGCONT);
    keeps(&bench, [&decode, &prefill], soon("it is back", || !bench.router.is_away())).await;
    assert_eq!(bench.router.metric("tandem_discovery_losses_total"), 1);

    bench.server.kill();
    soon("its death is noticed", || bench.router.is_away()).await;
    bench.server.run();
    keeps(&bench, [&decode, &prefill], soon("it is back", || !bench.router.is_away())).await;

    bench.server.wipe();
    let unlisted = || bench.router.metric("tandem_discovery_unlisted_members");
    let back = async {
        soon("its death is noticed", || bench.router.is_away()).await;
        soon("it is back", || !bench.router.is_away()).await;
        soon("all are registered again", || unlisted() == 0).await;
    };
    keeps(&bench, [&decode, &prefill], back).await;
    assert_eq!(keys(&mut client(&bench.server).await).await, ["/tandem/workers/d0", "/tandem/workers/p0"]);
    assert_eq!(*second.view().borrow(), *bench.view().borrow());
}

#[tokio::test]
async fn who_is_no_longer_listed_and_lives_is_kept_and_registers_again() {
    let bench = Outside::new();
    let (decode, prefill) = pair(&bench).await;
    let mut client = client(&bench.server).await;
    let unlisted = || bench.router.metric("tandem_discovery_unlisted_members");
    let deleted = async {
        client.delete("/tandem/workers/d0", None).await.unwrap();
        soon("the key is gone", || unlisted() == 1).await;
        soon("it is written again", || unlisted() == 0).await;
        let lease = client.get("/tandem/workers/p0", None).await.unwrap().kvs()[0].lease();
        client.lease_revoke(lease).await.unwrap();
        soon("the lease is gone", || unlisted() == 1).await;
        soon("there is another", || unlisted() == 0).await;
    };
    keeps(&bench, [&decode, &prefill], deleted).await;
}

#[tokio::test]
async fn what_is_no_member_is_passed_over_and_clusters_are_apart() {
    let bench = Outside::new();
    let (decode, _prefill) = pair(&bench).await;
    let mut client = client(&bench.server).await;
    let ours = client.get("/tandem/workers/d0", None).await.unwrap().kvs()[0].value_str().unwrap().to_owned();
    let of_a_later_version = ours.replacen("\"version\":1", "\"version\":2", 1);
    assert_ne!(of_a_later_version, ours);
    let mut richer: serde_json::Value = serde_json::from_str(&ours).unwrap();
    richer["since"] = 1.into();
    richer["record"]["pets"] = 2.into();
    richer["record"]["name"] = "dead".into();
    richer["record"]["incarnation"] = "AAAA".into();
    let richer = richer.to_string();
    for (key, value) in [
        ("/tandem/workers/x", "\u{1}not json"),
        ("/tandem/workers/y", of_a_later_version.as_str()),
        ("/tandem/workers/z", ours.as_str()),
        ("/tandem/workers/dead", richer.as_str()),
    ] {
        client.put(key, value, None).await.unwrap();
    }
    soon("three are skipped", || bench.router.metric("tandem_discovery_skipped_total") == 3).await;
    let other = EtcdFlags { etcd_prefix: "/tandem2/".to_owned(), ..bench.flags.clone() };
    let another = Worker::start("d0", Role::Decode, running(9), Box::new(etcd(&other, &Meters::new())));
    until(&mut Router::of(&other).view(), 10, |view| is(view, "d0", &another)).await;
    assert!(is(&bench.view().borrow(), "d0", &decode));
    // who is listed, but refuses to be who it is said to be, is no member either
    assert_eq!(names(&bench.view().borrow()), ["d0", "p0"]);
    assert_eq!(bench.router.metric("tandem_discovery_skipped_total"), 3);
}

#[tokio::test]
async fn of_several_servers_one_that_answers_is_enough() {
    let server = Server::start();
    let dead = "http://127.0.0.1:1".to_owned();
    let flags = EtcdFlags { etcd: vec![dead.clone(), server.url(), dead], ..flags(&server) };
    let worker = Worker::start("d0", Role::Decode, running(1), Box::new(etcd(&flags, &Meters::new())));
    until(&mut Router::of(&flags).view(), 10, |view| is(view, "d0", &worker)).await;
}

/// An authority's own certificate, a server's and a client's, as files.
fn certificates(folder: &Path) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    for name in ["server", "member"] {
        let key = KeyPair::generate().unwrap();
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let own = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap().pem();
        let folder = folder.join(name);
        std::fs::create_dir(&folder).unwrap();
        for (file, text) in [("ca.crt", &authority), ("tls.crt", &own), ("tls.key", &key.serialize_pem())] {
            std::fs::write(folder.join(file), text).unwrap();
        }
    }
    std::fs::create_dir(folder.join("stranger")).unwrap();
    std::fs::copy(folder.join("member/ca.crt"), folder.join("stranger/ca.crt")).unwrap();
}

/// A user who may touch only the cluster's keys.
async fn with_users(client: &mut Client) {
    client.user_add("root", "r", None).await.unwrap();
    client.user_grant_role("root", "root").await.unwrap();
    client.role_add("members").await.unwrap();
    let below = Permission::new(PermissionType::Readwrite, "/tandem/").with_prefix();
    client.role_grant_permission("members", below).await.unwrap();
    client.user_add("tandem", "secret", None).await.unwrap();
    client.user_grant_role("tandem", "members").await.unwrap();
    client.auth_enable().await.unwrap();
}

#[tokio::test]
async fn with_certificates_and_passwords_only_who_has_both_is_answered() {
    let server = Server::with("https", |folder| {
        certificates(folder);
        let file = |name: &str| folder.join("server").join(name).display().to_string();
        vec![
            format!("--cert-file={}", file("tls.crt")),
            format!("--key-file={}", file("tls.key")),
            format!("--trusted-ca-file={}", file("ca.crt")),
            "--client-cert-auth".to_owned(),
        ]
    });
    let password = server.folder().join("password");
    std::fs::write(&password, "secret\n").unwrap();
    let right = EtcdFlags {
        etcd_tls: Some(server.folder().join("member")),
        etcd_user: Some("tandem".to_owned()),
        etcd_password_file: Some(password.clone()),
        ..flags(&server)
    };
    let tls = etcd_client::TlsOptions::new()
        .ca_certificate(etcd_client::Certificate::from_pem(
            std::fs::read(server.folder().join("member/ca.crt")).unwrap(),
        ))
        .identity(etcd_client::Identity::from_pem(
            std::fs::read(server.folder().join("member/tls.crt")).unwrap(),
            std::fs::read(server.folder().join("member/tls.key")).unwrap(),
        ));
    let options = etcd_client::ConnectOptions::new().with_tls(tls);
    with_users(&mut Client::connect([server.url()], Some(options)).await.unwrap()).await;

    let announce = || Box::new(etcd(&right, &Meters::new())) as Box<dyn Announce>;
    let worker = Worker::start("d0", Role::Decode, running(1), announce());
    let router = Router::of(&right);
    until(&mut router.view(), 15, |view| is(view, "d0", &worker)).await;
    assert!(!router.is_away());

    let stranger = EtcdFlags { etcd_tls: Some(server.folder().join("stranger")), ..right.clone() };
    let nobody = EtcdFlags { etcd_user: None, etcd_password_file: None, ..right.clone() };
    let wrong = server.folder().join("wrong");
    std::fs::write(&wrong, "guess").unwrap();
    let guesser = EtcdFlags { etcd_password_file: Some(wrong), ..right.clone() };
    for refused in [stranger, nobody, guesser] {
        let router = Router::of(&refused);
        sleep(Duration::from_secs(1)).await;
        assert!(router.is_away() && router.view().borrow().members().count() == 0, "{refused:?}");
    }
    let unreadable = EtcdFlags { etcd_tls: Some("nowhere".into()), ..right.clone() };
    let error = discovery::Etcd::new(&unreadable, process::Random::system(), &Meters::new()).unwrap_err();
    assert!(error.to_string().starts_with("nowhere/ca.crt"), "{error}");
}
