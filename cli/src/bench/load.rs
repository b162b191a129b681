//! Sends requests and notes when their tokens came.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use proto::v1::{GenerateRequest, Model, Sampling, Tokens, generate_request::Prompt};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::{Instant, sleep_until};
use tonic::Status;

use super::trace::Request;
use crate::router::Client;

/// What one request took.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) began: Instant,
    pub(super) ended: Instant,
    pub(super) prompt_tokens: usize,
    pub(super) outcome: Result<Tokened, String>,
}

/// Tokens of a request that finished.
#[derive(Debug, Clone)]
pub(super) struct Tokened {
    pub(super) ttft: Duration,
    /// Between deltas with tokens; one entry a token, a delta's own tokens share its time.
    pub(super) itl: Vec<Duration>,
    pub(super) tokens: usize,
}

/// A client, what it asks for, and the seed of its prompts.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) client: Client,
    pub(super) model: Model,
    pub(super) seed: u64,
}

impl Load {
    /// `concurrency` requests in flight until all are done.
    pub(super) async fn closed(self, requests: Vec<Request>, concurrency: usize) -> Vec<Sample> {
        let load = Arc::new(self);
        stream::iter(requests.into_iter().enumerate())
            .map(|(index, request)| Arc::clone(&load).one(index, request))
            .buffer_unordered(concurrency)
            .collect()
            .await
    }

    /// Arrivals at `rate` a second (or at the trace's own times), whatever is still in flight.
    pub(super) async fn open(self, requests: Vec<Request>, rate: f64) -> Vec<Sample> {
        let mut rng = StdRng::seed_from_u64(self.seed);
        let load = Arc::new(self);
        let began = Instant::now();
        let mut at = Duration::ZERO;
        let tasks: Vec<_> = requests
            .into_iter()
            .enumerate()
            .map(|(index, request)| {
                at = request.at.unwrap_or_else(|| {
                    let gap: f64 = rng.random_range(f64::MIN_POSITIVE..1.0);
                    at + Duration::from_secs_f64(-gap.ln() / rate)
                });
                let (load, due) = (Arc::clone(&load), began + at);
                tokio::spawn(async move {
                    sleep_until(due).await;
                    load.one(index, request).await
                })
            })
            .collect();
        let mut samples = Vec::with_capacity(tasks.len());
        for task in tasks {
            samples.extend(task.await.ok());
        }
        samples
    }

    async fn one(self: Arc<Self>, index: usize, request: Request) -> Sample {
        let message = self.message(index, &request);
        let began = Instant::now();
        let outcome = self.tokens(message, began).await.map_err(|status| status.message().to_owned());
        Sample { began, ended: Instant::now(), prompt_tokens: request.prompt, outcome }
    }

    fn message(&self, index: usize, request: &Request) -> GenerateRequest {
        let mut rng = StdRng::seed_from_u64(self.seed.wrapping_add(index as u64));
        // The first few ids are special tokens in the tokenizers served here.
        let ids = (0..request.prompt).map(|_| rng.random_range(16..self.model.vocabulary_size)).collect();
        GenerateRequest {
            model: self.model.name.clone(),
            prompt: Some(Prompt::Tokens(Tokens { ids })),
            sampling: Some(Sampling {
                max_tokens: Some(request.output),
                temperature: Some(0.0),
                ignore_eos: true,
                ..Sampling::default()
            }),
            ..GenerateRequest::default()
        }
    }

    async fn tokens(&self, message: GenerateRequest, began: Instant) -> Result<Tokened, Status> {
        let mut stream = self.client.clone().generate(message).await?.into_inner();
        let mut got = Tokened { ttft: Duration::ZERO, itl: Vec::new(), tokens: 0 };
        let mut last = began;
        while let Some(response) = stream.message().await? {
            let now = Instant::now();
            let count = response.token_ids.len();
            if count > 0 {
                let share = (now - last) / u32::try_from(count).unwrap_or(u32::MAX);
                if got.tokens == 0 {
                    got.ttft = now - began;
                } else {
                    got.itl.extend(std::iter::repeat_n(share, count));
                }
                got.tokens += count;
                last = now;
            }
            if response.finish.is_some() {
                return Ok(got);
            }
        }
        Err(Status::internal("the stream ended without a finish"))
    }
}
