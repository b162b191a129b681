//! Engines over the recorded models.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use engine::{
    DraftCounts, Engine, EngineConfig, EngineHandle, Error, GenerateEvent, GenerateJob, Limits, Metrics,
    PrefillJob, Progress, Role,
};
use prefix::Namespace;
use programs::ShapeLadder;
use programs::sampling::Sampling;
use programs::weights::Float;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde::Deserialize;

#[derive(Deserialize)]
struct Expected {
    prompts: Vec<Prompt>,
}

/// A prompt and how `transformers` continues it greedily.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Prompt {
    pub(crate) ids: Vec<u32>,
    pub(crate) greedy: Vec<u32>,
}

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/fixtures").join(name)
}

pub(crate) fn prompts(name: &str) -> Vec<Prompt> {
    let text = std::fs::read_to_string(fixture(name).join("expected.json")).unwrap();
    serde_json::from_str::<Expected>(&text).unwrap().prompts
}

/// Prompts of up to 200 tokens and 64 more.
pub(crate) fn ladder() -> ShapeLadder {
    ShapeLadder {
        chunks: vec![16, 64],
        batches: vec![2, 8],
        context: 320,
        page_tokens: 16,
        pages: 150,
        slots: 11,
        drafts: 0,
        latents: Float::F32,
        lane: 1,
    }
}

pub(crate) fn config(name: &str, role: Role, ladder: ShapeLadder) -> EngineConfig {
    EngineConfig {
        model_dir: fixture(name),
        plugin: pjrt::plugin_path().unwrap(),
        devices: None,
        role,
        ladder: Some(ladder),
        drafts: None,
        float: Float::F32,
        int8: false,
        cache_dir: Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs")),
        poison: true,
        limits: Limits::default(),
        prefix: None,
    }
}

/// Why an engine does not start.
pub(crate) fn start_error(config: EngineConfig) -> Error {
    Engine::start(config, Metrics::register(&mut Registry::default()), |_| {}).unwrap_err()
}

pub(crate) struct Rig {
    pub(crate) engine: Engine,
    registry: Registry,
}

impl Rig {
    pub(crate) fn start(config: EngineConfig) -> Self {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let seen: Arc<Mutex<Vec<Progress>>> = Arc::default();
        let engine = {
            let seen = Arc::clone(&seen);
            Engine::start(config, metrics, move |progress| seen.lock().unwrap().push(progress)).unwrap()
        };
        let seen = seen.lock().unwrap();
        let total = seen[0].total;
        assert_eq!(seen.iter().map(|progress| progress.done).max(), Some(total));
        assert_eq!(seen.len(), total, "{seen:?}");
        Self { engine, registry }
    }

    pub(crate) fn handle(&self) -> EngineHandle {
        self.engine.handle()
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap().parse().unwrap()
    }

    /// Within a second nothing is held, and nothing was compiled since the start.
    pub(crate) async fn settle(&self) {
        let handle = self.handle();
        let late = Instant::now() + Duration::from_secs(1);
        loop {
            let load = handle.load();
            if (load.free_pages, load.free_slots) == (load.pages, load.slots)
                && load.running + load.waiting == 0
            {
                break;
            }
            assert!(Instant::now() < late, "still held: {load:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        for line in [
            "tandem_pool_pages_held 0\n",
            "tandem_pool_slots_held 0\n",
            "tandem_engine_compilations_after_ready_total 0\n",
        ] {
            assert!(text.contains(line), "no {line} in {text}");
        }
    }
}

pub(crate) fn greedy(max_tokens: usize) -> Sampling {
    let mut sampling = Sampling::default();
    sampling.temperature = 0.0;
    sampling.max_tokens = Some(max_tokens as u32);
    sampling
}

fn namespace() -> Namespace {
    Namespace::of(b"", b"")
}

pub(crate) fn job(prompt: &[u32], sampling: Sampling) -> GenerateJob {
    GenerateJob {
        namespace: namespace(),
        request_id: "test".to_owned(),
        prompt: prompt.to_vec(),
        sampling,
        end_tokens: Vec::new(),
        priority: 0,
        deadline: None,
    }
}

pub(crate) fn prefill_job(prompt: &[u32], sampling: &Sampling) -> PrefillJob {
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

/// Tokens of a whole request.
pub(crate) async fn run(handle: &EngineHandle, job: GenerateJob) -> Vec<engine::SampledToken> {
    run_counted(handle, job).await.0
}

/// Tokens of a whole request, and what became of drafts.
pub(crate) async fn run_counted(
    handle: &EngineHandle,
    job: GenerateJob,
) -> (Vec<engine::SampledToken>, DraftCounts) {
    let mut stream = handle.generate(job).unwrap();
    let (mut all, mut counts) = (Vec::new(), DraftCounts::default());
    while let Some(event) = stream.next().await {
        match event.unwrap() {
            GenerateEvent::Tokens { tokens, drafts, .. } => {
                all.extend(tokens);
                counts += drafts;
            }
            GenerateEvent::Ended { .. } => return (all, counts),
        }
    }
    panic!("a stream ended silently");
}

pub(crate) fn ids(tokens: &[engine::SampledToken]) -> Vec<u32> {
    tokens.iter().map(|token| token.id).collect()
}
