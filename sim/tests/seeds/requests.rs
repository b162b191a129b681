//! What clients ask, and what they have to get.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::fake::expected;
use programs::sampling::{Asked, SampleRow};
use proto::v1::generate_request::Prompt;
use proto::v1::inference_client::InferenceClient;
use proto::v1::{FinishReason, GenerateRequest, Sampling, Tokens};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::hosts::{MODEL, VOCABULARY};

/// Longest life of a request.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Every token as it has to be, once.
    Right,
    /// The client left.
    Left,
    /// Refused or ended with a status.
    Failed(Code, String),
}

/// A request, how it ended, and how long it took.
pub(crate) type Ended = (usize, Outcome, Duration);

/// All that ended so far.
pub(crate) type Outcomes = Arc<Mutex<Vec<Ended>>>;

pub(crate) struct Request {
    after: Duration,
    prompt: Vec<u32>,
    max: u32,
    temperature: f64,
    seed: u64,
    /// Tokens after which the client leaves.
    leaves_after: Option<usize>,
}

/// Conversations that begin alike, over the time in which things go wrong.
fn requests(seed: u64, count: usize) -> Vec<Request> {
    let mut random = StdRng::seed_from_u64(seed ^ 0x5eed);
    let shared: Vec<Vec<u32>> =
        (0..3).map(|_| (0..120).map(|_| random.random_range(3..VOCABULARY as u32)).collect()).collect();
    (0..count)
        .map(|index| {
            let base = &shared[random.random_range(0..shared.len())];
            let mut prompt = base[..random.random_range(1..=base.len())].to_vec();
            prompt.extend((0..random.random_range(0..60)).map(|_| random.random_range(3..VOCABULARY as u32)));
            Request {
                after: Duration::from_millis(random.random_range(0..9_000)),
                prompt,
                max: random.random_range(1..150),
                temperature: if random.random_bool(0.5) { 0.0 } else { 0.8 },
                seed: index as u64 * 31 + seed,
                leaves_after: random.random_bool(0.2).then(|| random.random_range(0..40)),
            }
        })
        .collect()
}

pub(crate) fn channel(network: &net::Network) -> Channel {
    Endpoint::from_static("http://router:50051")
        .connect_with_connector_lazy(net::connector(network, net::Traffic::Public))
}

pub(crate) async fn ask_all(seed: u64, count: usize, network: &net::Network, outcomes: Outcomes) {
    let channel = channel(network);
    let all = requests(seed, count).into_iter().enumerate().map(|(index, request)| {
        let (channel, outcomes) = (channel.clone(), Arc::clone(&outcomes));
        async move {
            sleep(request.after).await;
            let began = Instant::now();
            let outcome = timeout(DEADLINE + Duration::from_secs(1), ask(channel, &request)).await;
            let outcome = outcome.unwrap_or_else(|_| panic!("request {index} outlived its deadline"));
            outcomes.lock().unwrap().push((index, outcome, began.elapsed()));
        }
    });
    futures::future::join_all(all).await;
}

/// A prompt of several chunks, and an answer of many steps.
pub(crate) fn long(seed: u64) -> Request {
    let mut random = StdRng::seed_from_u64(seed);
    let prompt = (0..150).map(|_| random.random_range(3..VOCABULARY as u32)).collect();
    Request { after: Duration::ZERO, prompt, max: 200, temperature: 0.8, seed, leaves_after: None }
}

/// Until a request goes through.
pub(crate) async fn ready(network: &net::Network) {
    let channel = channel(network);
    let first = Request {
        after: Duration::ZERO,
        prompt: vec![5, 6, 7],
        max: 2,
        temperature: 0.0,
        seed: 1,
        leaves_after: None,
    };
    for _ in 0..200 {
        if ask(channel.clone(), &first).await == Outcome::Right {
            return;
        }
        sleep(Duration::from_millis(50)).await;
    }
    panic!("the cluster never became ready");
}

pub(crate) async fn ask(channel: Channel, request: &Request) -> Outcome {
    let Request { prompt, max, temperature, seed, .. } = request;
    let sampling = Sampling {
        max_tokens: Some(*max),
        temperature: Some(*temperature as f32),
        seed: Some(*seed),
        ignore_eos: true,
        ..Sampling::default()
    };
    let asked = Asked { temperature: Some(*temperature), seed: Some(*seed), ..Asked::default() };
    let row = SampleRow::pack(&asked.checked(VOCABULARY as u32, 0).unwrap());
    let wanted = expected(prompt, &row, VOCABULARY, *max as usize);
    let mut message = tonic::Request::new(GenerateRequest {
        model: MODEL.to_owned(),
        prompt: Some(Prompt::Tokens(Tokens { ids: prompt.clone() })),
        sampling: Some(sampling),
        ..GenerateRequest::default()
    });
    message.set_timeout(DEADLINE);
    let failed = |status: tonic::Status| Outcome::Failed(status.code(), status.message().to_owned());
    let mut answer = match InferenceClient::new(channel).generate(message).await {
        Ok(answer) => answer.into_inner(),
        Err(status) => return failed(status),
    };
    let (mut tokens, mut next) = (Vec::new(), 0);
    loop {
        if request.leaves_after.is_some_and(|after| tokens.len() > after) {
            return Outcome::Left;
        }
        let response = match answer.message().await {
            Ok(Some(response)) => response,
            Ok(None) => panic!("a stream ended silently after {} tokens", tokens.len()),
            Err(status) => return failed(status),
        };
        assert_eq!(response.sequence, next, "answers are numbered without a gap");
        next += 1;
        tokens.extend(response.token_ids);
        assert!(wanted.starts_with(&tokens), "wrong tokens: {tokens:?}, not {wanted:?}");
        if let Some(finish) = response.finish {
            assert_eq!((finish.reason(), tokens.len()), (FinishReason::Length, wanted.len()));
            return Outcome::Right;
        }
    }
}
