use std::time::Duration;

use prefix::Namespace;
use programs::ShapeLadder;
use programs::sampling::{SampleRow, Sampling};
use programs::weights::Float;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::time::timeout;

use crate::command::Piece;
use crate::fake::{FakeDevice, Script, expected};
use crate::{
    DecodeEvent, DecodeJob, DecodeStream, EndReason, Engine, EngineHandle, Error, GenerateEvent, GenerateJob,
    Limits, Metrics, PrefillEvent, PrefillJob, PrefixCache, Reservation, Role,
};

mod faults;
mod flow;
mod hand_over;
mod prefix_cache;
mod windows;

const VOCABULARY: usize = 97;

fn ladder() -> ShapeLadder {
    ShapeLadder {
        chunks: vec![4, 16],
        batches: vec![2, 4, 8],
        context: 128,
        page_tokens: 8,
        pages: 64,
        slots: 12,
        drafts: 0,
        latents: Float::F32,
        lane: 1,
    }
}

/// An engine over the fake device.
struct Rig {
    engine: Engine,
    script: Script,
    registry: Registry,
}

impl Rig {
    fn new(ladder: ShapeLadder, limits: Limits) -> Self {
        Self::keeping(ladder, limits, None)
    }

    fn keeping(ladder: ShapeLadder, limits: Limits, prefix: Option<PrefixCache>) -> Self {
        let script = Script::default();
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let device = FakeDevice::new(ladder, VOCABULARY, script.clone());
        let engine = Engine::over(device, Role::Both, limits, prefix, metrics).unwrap();
        Self { engine, script, registry }
    }

    fn handle(&self) -> EngineHandle {
        self.engine.handle()
    }

    /// Waits until nothing is held; far longer than a step takes.
    async fn settle(&self) {
        let free = |load: crate::Load| load.free_pages == load.pages && load.free_slots == load.slots;
        for _ in 0..500 {
            let load = self.handle().load();
            if free(load) && load.running + load.waiting == 0 {
                let mut text = String::new();
                encode(&mut text, &self.registry).unwrap();
                for gauge in ["pages", "slots", "checkpoints"] {
                    assert!(text.contains(&format!("tandem_pool_{gauge}_held 0\n")), "{text}");
                }
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("still held: {:?}", self.handle().load());
    }
}

fn sampling(seed: u64, max_tokens: u32) -> Sampling {
    let mut sampling = Sampling::default();
    sampling.seed = seed;
    sampling.max_tokens = Some(max_tokens);
    sampling
}

fn prompt(seed: u64, len: usize) -> Vec<u32> {
    (0..len as u64).map(|at| ((seed * 7919 + at * at * 31 + at) % VOCABULARY as u64) as u32).collect()
}

fn namespace() -> Namespace {
    Namespace::of(b"", b"fake")
}

fn generate(prompt: &[u32], sampling: &Sampling) -> GenerateJob {
    GenerateJob {
        request_id: "test".to_owned(),
        prompt: prompt.to_vec(),
        namespace: namespace(),
        sampling: sampling.clone(),
        end_tokens: vec![],
        priority: 0,
        deadline: None,
    }
}

fn prefill(prompt: &[u32], sampling: &Sampling) -> PrefillJob {
    PrefillJob {
        request_id: "test".to_owned(),
        prompt: prompt.to_vec(),
        namespace: namespace(),
        output_tokens: 0,
        sampling: sampling.clone(),
        priority: 0,
        deadline: None,
    }
}

fn decode(prompt_len: usize, first_token: u32, sampling: &Sampling) -> DecodeJob {
    DecodeJob {
        request_id: "test".to_owned(),
        prompt_len: prompt_len as u32,
        prompt_seen: vec![],
        output_counts: vec![(first_token, 1)],
        first_token,
        sampling: sampling.clone(),
        end_tokens: vec![],
        deadline: None,
    }
}

/// All tokens of a request and how it ended; checks that positions leave no gap.
async fn collect(handle: &EngineHandle, job: GenerateJob) -> Result<(Vec<u32>, EndReason), Error> {
    let prompt_len = job.prompt.len();
    let mut stream = handle.generate(job)?;
    let mut tokens = Vec::new();
    while let Some(event) = stream.next().await {
        match event? {
            GenerateEvent::Tokens { position, tokens: more, .. } => {
                assert_eq!(position as usize, prompt_len + tokens.len());
                tokens.extend(more.into_iter().map(|token| token.id));
            }
            GenerateEvent::Ended { reason, .. } => {
                assert!(stream.next().await.is_none());
                return Ok((tokens, reason));
            }
        }
    }
    panic!("a stream ended silently");
}

/// A finished prefill, with chunks as they came.
struct Prefilled {
    chunks: Vec<Piece>,
    first: u32,
    state: crate::SlotState,
    cached: u32,
}

async fn run_prefill(handle: &EngineHandle, job: PrefillJob) -> Result<Prefilled, Error> {
    let mut stream = handle.prefill(job)?;
    let mut chunks = Vec::new();
    loop {
        match stream.next().await.expect("ended silently")? {
            PrefillEvent::Started => {}
            PrefillEvent::Chunk { first_position, tokens, latents, keys, .. } => {
                chunks.push(Piece { first: first_position, tokens, latents, keys });
            }
            PrefillEvent::Done { first, state, cached, .. } => {
                return Ok(Prefilled { chunks, first: first.id, state, cached });
            }
        }
    }
}

async fn import(reservation: &Reservation, piece: &Piece) -> Result<(), Error> {
    let Piece { first, tokens, latents, keys } = piece.clone();
    reservation.import_latents(first, tokens, latents, keys).await
}

/// All tokens of an answer, the first included, and what its end says.
async fn answer(mut stream: DecodeStream, job: &DecodeJob) -> (Vec<u32>, DecodeEvent) {
    let mut tokens = vec![job.first_token];
    loop {
        match stream.next().await.expect("ended silently").unwrap() {
            DecodeEvent::Tokens { position, tokens: more, .. } => {
                assert_eq!(position as usize, job.prompt_len as usize + tokens.len());
                tokens.extend(more.into_iter().map(|token| token.id));
            }
            ended @ DecodeEvent::Ended { .. } => {
                assert!(stream.next().await.is_none());
                return (tokens, ended);
            }
        }
    }
}

/// What the fake device's model says.
fn continuation(prompt: &[u32], sampling: &Sampling, count: usize) -> Vec<u32> {
    expected(prompt, &SampleRow::pack(sampling), VOCABULARY, count)
}
