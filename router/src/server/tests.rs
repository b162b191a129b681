use std::time::Duration;

use discovery::MembershipService;
use net::Traffic;
use proto::status::Fault;
use proto::v1::inference_client::InferenceClient;
use proto::v1::{ErrorReason, GenerateRequest, Sampling, generate_request::Prompt};
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::Listeners;
use crate::test_cluster::{CONFIG, Cluster, Ill};

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

#[tokio::test]
async fn a_router_opens_follows_its_fleet_and_closes_without_losing_a_request() {
    let cluster = Cluster::start(CONFIG, 1, 1).await;
    let grpc = net::system().bind("127.0.0.1:0", Traffic::Calls).await.unwrap();
    let http = net::system().bind("127.0.0.1:0", Traffic::Calls).await.unwrap();
    let url = format!("http://{}", grpc.local_addr().unwrap());
    let membership = MembershipService::new(cluster.registry.clone(), Duration::from_secs(1));
    let router = cluster.router.clone();
    let serving = tokio::spawn(router.serve(Listeners { grpc, http }, membership, Duration::from_secs(5)));
    let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
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
    says(&channel, ServingStatus::NotServing).await;
    let draining = client.generate(request(3)).await.unwrap_err();
    assert_eq!(Fault::from_status(&draining).reason, ErrorReason::Draining, "{draining}");
    assert!(!serving.is_finished(), "a request is still running");
    drop(deltas);
    tokio::time::timeout(Duration::from_secs(3), serving).await.unwrap().unwrap().unwrap();
}
