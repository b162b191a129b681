use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use discovery::MembershipService;
use hyper_util::rt::TokioIo;
use net::{Listener, Traffic};
use proto::status::Fault;
use proto::v1::inference_client::InferenceClient;
use proto::v1::membership_client::MembershipClient;
use proto::v1::{
    ErrorReason, GenerateRequest, JoinRequest, ListModelsRequest, Sampling, generate_request::Prompt,
};
use tokio::net::TcpStream;
use tonic::Code;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::Listeners;
use crate::Config;
use crate::test_cluster::{CONFIG, Cluster, Ill, PATIENT};

fn request(max_tokens: u32) -> GenerateRequest {
    GenerateRequest {
        model: "demo".to_owned(),
        prompt: Some(Prompt::Text("hello".to_owned())),
        sampling: Some(Sampling { max_tokens: Some(max_tokens), ..Sampling::default() }),
        ..GenerateRequest::default()
    }
}

async fn says(channel: &Channel, status: ServingStatus) {
    let mut health = HealthClient::new(channel.clone());
    for _ in 0..200 {
        let asked = HealthCheckRequest { service: "demo".to_owned() };
        if health.check(asked).await.is_ok_and(|answer| answer.into_inner().status() == status) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("health never said {status:?}");
}

async fn bound() -> Listener {
    net::system().bind("127.0.0.1:0", Traffic::Public).await.unwrap()
}

/// What a worker without a record is told at this address.
async fn joining_at(address: SocketAddr) -> Code {
    let mut client = MembershipClient::connect(format!("http://{address}")).await.unwrap();
    let nothing = futures::stream::iter([JoinRequest::default()]);
    match client.join(nothing).await {
        Ok(answers) => answers.into_inner().message().await.unwrap_err().code(),
        Err(refused) => refused.code(),
    }
}

#[tokio::test]
async fn with_an_address_of_their_own_workers_join_nowhere_else() {
    let cluster = Cluster::start(CONFIG, 1, 1).await;
    let listeners =
        Listeners { grpc: bound().await, http: bound().await, members: Some(bound().await), status: None };
    let clients = listeners.grpc.local_addr().unwrap();
    let members = listeners.members.as_ref().unwrap().local_addr().unwrap();
    let membership = MembershipService::new(cluster.registry.clone(), Duration::from_secs(1));
    let router = cluster.router.clone();
    let serving = tokio::spawn(router.serve(listeners, membership, Duration::from_secs(5)));
    assert_eq!(joining_at(members).await, Code::InvalidArgument);
    assert_eq!(joining_at(clients).await, Code::Unimplemented);
    let asked = async |at: SocketAddr| {
        let mut client = InferenceClient::connect(format!("http://{at}")).await.unwrap();
        client.list_models(ListModelsRequest {}).await.map(drop)
    };
    asked(clients).await.unwrap();
    assert_eq!(asked(members).await.unwrap_err().code(), Code::Unimplemented);
    cluster.drain.begin();
    tokio::time::timeout(Duration::from_secs(3), serving).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_router_opens_follows_its_fleet_and_closes_without_losing_a_request() {
    let cluster = Cluster::start(CONFIG, 1, 1).await;
    let listeners = Listeners { grpc: bound().await, http: bound().await, members: None, status: None };
    let address = listeners.grpc.local_addr().unwrap();
    let membership = MembershipService::new(cluster.registry.clone(), Duration::from_secs(1));
    let router = cluster.router.clone();
    let serving = tokio::spawn(router.serve(listeners, membership, Duration::from_secs(5)));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut client = InferenceClient::new(channel.clone());

    says(&channel, ServingStatus::Serving).await;
    let mut deltas = client.generate(request(3)).await.unwrap().into_inner();
    let mut text = String::new();
    while let Some(delta) = deltas.message().await.unwrap() {
        text.push_str(&delta.text);
    }
    assert_eq!(text, "abc");
    let refused = client.generate(request(0)).await.unwrap_err();
    assert_eq!(Fault::from_status(&refused).field.as_deref(), Some("sampling.max_tokens"), "{refused}");

    cluster.leaves("d0");
    says(&channel, ServingStatus::NotServing).await;
    let nobody = client.generate(request(3)).await.unwrap_err();
    assert_eq!(Fault::from_status(&nobody).reason, ErrorReason::NoWorker);
    cluster.joins("d0");
    says(&channel, ServingStatus::Serving).await;

    cluster.falls_ill("d0", Ill::Hangs(3));
    let mut deltas = client.generate(request(9)).await.unwrap().into_inner();
    assert!(deltas.message().await.unwrap().is_some());
    cluster.drain.begin();
    while TcpStream::connect(address).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let gone = client.generate(request(3)).await.unwrap_err();
    let broken = [Code::Unavailable, Code::Cancelled].contains(&gone.code());
    assert!(broken, "a connection that there was is no way in: {gone}");
    assert!(!serving.is_finished(), "a request is still running");
    drop(deltas);
    tokio::time::timeout(Duration::from_secs(3), serving).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn on_demand_a_request_brings_the_workers_that_it_waits_for() {
    let cluster = Cluster::start(Config { on_demand: true, ..PATIENT }, 1, 1).await;
    let all = ["p0", "d0"];
    all.iter().for_each(|name| cluster.leaves(name));
    let listeners = Listeners { grpc: bound().await, http: bound().await, members: None, status: None };
    let url = format!("http://{}", listeners.grpc.local_addr().unwrap());
    let membership = MembershipService::new(cluster.registry.clone(), Duration::from_secs(1));
    let router = cluster.router.clone();
    let serving = tokio::spawn(router.serve(listeners, membership, Duration::from_secs(5)));
    let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
    says(&channel, ServingStatus::Serving).await;
    let mut client = InferenceClient::new(channel);
    let asking = tokio::spawn(async move { client.generate(request(3)).await });
    let wanted = || cluster.router.demand.now().requests;
    while wanted() == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    all.iter().for_each(|name| cluster.joins(name));
    let mut deltas = asking.await.unwrap().unwrap().into_inner();
    assert!(deltas.message().await.unwrap().is_some());
    assert_eq!(wanted(), 0);
    drop(deltas);
    cluster.drain.begin();
    tokio::time::timeout(Duration::from_secs(3), serving).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn an_old_connection_is_replaced_and_loses_no_stream() {
    let aging = Config { connection_age: Duration::from_millis(300), ..CONFIG };
    let cluster = Cluster::start(aging, 1, 1).await;
    let listeners = Listeners { grpc: bound().await, http: bound().await, members: None, status: None };
    let address = listeners.grpc.local_addr().unwrap();
    let membership = MembershipService::new(cluster.registry.clone(), Duration::from_secs(1));
    let router = cluster.router.clone();
    let serving = tokio::spawn(router.serve(listeners, membership, Duration::from_secs(5)));
    let dials = Arc::new(AtomicUsize::new(0));
    let dialled = dials.clone();
    let dial = tower::service_fn(move |_: Uri| {
        dialled.fetch_add(1, Ordering::Relaxed);
        async move { TcpStream::connect(address).await.map(TokioIo::new) }
    });
    let channel = Endpoint::from_static("http://router").connect_with_connector_lazy(dial);
    says(&channel, ServingStatus::Serving).await;
    let mut client = InferenceClient::new(channel.clone());
    cluster.falls_ill("d0", Ill::Slow(700));
    let mut deltas = client.generate(request(9)).await.unwrap().into_inner();
    let mut text = String::new();
    while let Some(delta) = deltas.message().await.unwrap() {
        text.push_str(&delta.text);
    }
    assert_eq!(text, "abcdefghi", "its stream was longer than the connection's age");
    client.list_models(ListModelsRequest {}).await.unwrap();
    assert!(dials.load(Ordering::Relaxed) > 1);
    cluster.drain.begin();
    tokio::time::timeout(Duration::from_secs(3), serving).await.unwrap().unwrap().unwrap();
}
