use std::time::Duration;

use discovery::{InMemory, Registry, Seat};
use net::Traffic;
use process::grpc;
use proto::externalscaler::external_scaler_server::ExternalScaler;
use proto::externalscaler::{GetMetricsRequest, ScaledObjectRef};
use proto::v1::peer_server::PeerServer;
use proto::v1::{self, Capacity, WorkerRecord};
use tokio::time::{advance, sleep};
use tonic::{Code, Request};

use super::*;

fn joins(registry: &InMemory, name: &str, role: Role, load: v1::Load) -> Seat {
    let record = WorkerRecord {
        name: name.to_owned(),
        role: role.into(),
        incarnation: name.as_bytes().to_vec().into(),
        grpc_address: "127.0.0.1:1".to_owned(),
        fingerprint: Some(v1::Fingerprint::default()),
        layout: Some(v1::Layout::default()),
        capacity: Some(Capacity { pages: 100, page_tokens: 16, slots: 10 }),
        ..WorkerRecord::default()
    };
    registry.seat(record, load).unwrap()
}

fn asks(pairs: &[(&str, &str)]) -> ScaledObjectRef {
    let scaler_metadata = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    ScaledObjectRef { scaler_metadata, ..ScaledObjectRef::default() }
}

async fn workers(external: &External, pairs: &[(&str, &str)]) -> Result<f64, Status> {
    let scaled_object_ref = Some(asks(pairs));
    let asked = GetMetricsRequest { scaled_object_ref, metric_name: "s0-tandem-workers".to_owned() };
    let answer = external.get_metrics(Request::new(asked)).await?.into_inner();
    let [value] = answer.metric_values.as_slice() else { panic!("{answer:?}") };
    assert_eq!(
        (value.metric_name.as_str(), value.metric_value),
        ("s0-tandem-workers", value.metric_value_float as i64)
    );
    Ok(value.metric_value_float)
}

use tonic::Status;

#[test]
fn loads_are_those_of_workers_that_take_more_and_of_requests_that_have_none() {
    let registry = InMemory::new();
    let prefill = |queued_tokens, tokens_per_second, draining| v1::Load {
        queued_tokens,
        tokens_per_second,
        draining,
        ..v1::Load::default()
    };
    let decode = |free_pages, free_slots, step_seconds| v1::Load {
        free_pages,
        free_slots,
        step_seconds,
        ..v1::Load::default()
    };
    let _seats = [
        joins(&registry, "p0", Role::Prefill, prefill(500, 2000.0, false)),
        joins(&registry, "p1", Role::Prefill, prefill(0, 0.0, false)),
        joins(&registry, "p2", Role::Prefill, prefill(900, 100.0, true)),
        joins(&registry, "d0", Role::Decode, decode(20, 4, 0.02)),
        joins(&registry, "d1", Role::Decode, decode(60, 10, 0.01)),
    ];
    let unplaced = Unplaced { requests: 2, prompt_tokens: 70 };
    let loads = Loads::of(&registry.watch().borrow(), unplaced);
    let prefill = PrefillLoad { workers: 2, busy: 1, tokens: 570, tokens_per_second: 2000.0, sequences: 8 };
    assert_eq!(loads.prefill, prefill);
    assert_eq!(loads.decode, DecodeLoad { workers: 2, sequences: 8, slots: 10, pages: 0.6, itl: 0.02 });
}

#[tokio::test(start_paused = true)]
async fn an_autoscaler_follows_the_queue_out_and_in_and_to_nothing() {
    let registry = InMemory::new();
    let demand = Demand::default();
    let scaling = Scaling::new(registry.watch(), demand.clone());
    let external = External::new(scaling.clone());
    let trigger = [("role", "prefill"), ("holdSeconds", "20"), ("scalerAddress", "router:50051")];
    assert_eq!(workers(&external, &trigger).await.unwrap(), 0.0);
    let mut news = external.stream_is_active(Request::new(asks(&trigger))).await.unwrap().into_inner();
    let mut active = async || futures::StreamExt::next(&mut news).await.unwrap().unwrap().result;
    assert!(!active().await);
    tokio::spawn(scaling.keep(None));
    let wanting = demand.of(4000);
    assert!(active().await, "from nothing, without a worker to ask");
    assert_eq!(workers(&external, &trigger).await.unwrap(), 3.0);
    let seat = joins(&registry, "p0", Role::Prefill, v1::Load::default());
    drop(wanting);
    assert!(seat.renew(v1::Load { queued_tokens: 9000, tokens_per_second: 1000.0, ..v1::Load::default() }));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(workers(&external, &trigger).await.unwrap(), 6.0);
    assert!(seat.renew(v1::Load { tokens_per_second: 1000.0, ..v1::Load::default() }));
    sleep(Duration::from_secs(15)).await;
    assert_eq!(workers(&external, &trigger).await.unwrap(), 6.0);
    assert!(!active().await);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(workers(&external, &trigger).await.unwrap(), 0.0);
    advance(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn what_can_not_be_asked_or_measured_is_an_error() {
    let registry = InMemory::new();
    let scaling = Scaling::new(registry.watch(), Demand::default());
    let external = External::new(scaling.clone());
    let refused = workers(&external, &[("role", "encode")]).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().starts_with("scalerMetadata.role: "), "{}", refused.message());
    scaling.loads.send_modify(|loads| *loads = Err("router 1.2.3.4:5: refused".to_owned()));
    let unknown = workers(&external, &[("role", "decode")]).await.unwrap_err();
    assert_eq!((unknown.code(), unknown.message()), (Code::Unavailable, "router 1.2.3.4:5: refused"));
}

#[tokio::test]
async fn routers_add_up_what_they_have() {
    let network = net::system();
    let stop = process::Drain::new();
    let mut names = Vec::new();
    let mut demands = Vec::new();
    for own in [b"one", b"two"] {
        let listener = network.bind("127.0.0.1:0", Traffic::Public).await.unwrap();
        names.push(listener.local_addr().unwrap().to_string());
        let demand = Demand::default();
        let service = PeerServer::new(PeerService::new(demand.clone(), own.to_vec().into()));
        let (_, routes) = grpc::base(proto::DESCRIPTORS).unwrap();
        tokio::spawn(grpc::serve(listener, routes.add_service(service), stop.clone(), None));
        demands.push(demand);
    }
    let one = Peers::new(names.clone(), network.clone(), b"one".to_vec().into());
    let two = Peers::new(names.clone(), network.clone(), b"two".to_vec().into());
    let (_a, _b, _c) = (demands[0].of(5), demands[1].of(70), demands[1].of(30));
    assert_eq!(one.demand().await, Ok(Unplaced { requests: 2, prompt_tokens: 100 }));
    assert_eq!(two.demand().await, Ok(Unplaced { requests: 1, prompt_tokens: 5 }));
    let free = network.bind("127.0.0.1:0", Traffic::Public).await.unwrap().local_addr().unwrap();
    let dead = Peers::new([names, vec![free.to_string()]].concat(), network, b"one".to_vec().into());
    assert!(dead.demand().await.unwrap_err().contains(&free.to_string()));
    stop.begin();
}
