//! The engine alone, in this process: how long a decode step takes, and how fast prompts are read.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context;
use engine::{
    Engine, EngineConfig, EngineHandle, GenerateEvent, GenerateJob, Limits, Metrics, PrefillEvent,
    PrefillJob, Role, default_ladder,
};
use futures::future::try_join_all;
use programs::sampling::{Asked, Sampling};
use serde::Serialize;
use telemetry::Meters;

const BATCHES: [u32; 4] = [2, 4, 8, 16];
/// Tokens a sequence holds before its steps are timed.
const CONTEXT: u32 = 256;
/// Steps before all sequences surely run, and steps timed.
const WARM: usize = 24;
const TIMED: usize = 96;
/// Prompts read, of eight whole chunks each.
const PROMPTS: usize = 8;

/// Medians.
#[derive(Debug, Serialize)]
pub(super) struct Steps {
    /// By rows a batch; the whole step loop is in it, the host's part too.
    decode_step_seconds: BTreeMap<u32, f64>,
    prefill_tokens_per_second: f64,
    prefill_chunk_tokens: u32,
}

/// Loads `folder` and times it.
pub(super) async fn run(folder: &Path) -> anyhow::Result<Steps> {
    let model = model::ModelConfig::from_dir(folder)?;
    let mut ladder = default_ladder(&model);
    ladder.batches = BATCHES.to_vec();
    ladder.slots = BATCHES[BATCHES.len() - 1];
    let chunk = ladder.chunks.last().copied().context("a ladder without chunks")?;
    let vocabulary = u32::try_from(model.vocabulary)?;
    let config = EngineConfig {
        model_dir: folder.to_path_buf(),
        plugin: pjrt::plugin_path()?,
        role: Role::Both,
        ladder: Some(ladder),
        cache_dir: Some(PathBuf::from(".tools/cache")),
        poison: false,
        limits: Limits::default(),
    };
    let engine = Engine::start(config, Meters::new().register(Metrics::register), |_| {})?;
    let handle = engine.handle();
    let mut decode_step_seconds = BTreeMap::new();
    for batch in BATCHES {
        decode_step_seconds.insert(batch, decode_step(&handle, batch, vocabulary).await?.as_secs_f64());
    }
    let mut speeds = Vec::new();
    for index in 0..PROMPTS {
        let prompt = prompt(index, chunk * 8, vocabulary);
        speeds.push(f64::from(chunk * 8) / prefill(&handle, prompt).await?.as_secs_f64());
    }
    Ok(Steps { decode_step_seconds, prefill_tokens_per_second: median(speeds), prefill_chunk_tokens: chunk })
}

/// The median time between two tokens of sequences that all run at once: one step each.
async fn decode_step(handle: &EngineHandle, batch: u32, vocabulary: u32) -> anyhow::Result<Duration> {
    let gaps = try_join_all((0..batch).map(|row| async move {
        let mut stream = handle.generate(GenerateJob {
            request_id: format!("row-{row}"),
            prompt: prompt(row as usize, CONTEXT, vocabulary),
            sampling: greedy(u32::try_from(WARM + TIMED)?, vocabulary)?,
            end_tokens: Vec::new(),
            priority: 0,
            deadline: None,
        })?;
        let mut times = Vec::with_capacity(WARM + TIMED);
        while let Some(event) = stream.next().await {
            if let GenerateEvent::Tokens { tokens, .. } = event? {
                times.extend(std::iter::repeat_n(Instant::now(), tokens.len()));
            }
        }
        anyhow::Ok(
            times.windows(2).skip(WARM).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect::<Vec<_>>(),
        )
    }))
    .await?;
    Ok(Duration::from_secs_f64(median(gaps.concat())))
}

async fn prefill(handle: &EngineHandle, prompt: Vec<u32>) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let mut stream = handle.prefill(PrefillJob {
        request_id: "prompt".to_owned(),
        sampling: greedy(1, u32::MAX)?,
        prompt,
        priority: 0,
        deadline: None,
    })?;
    while let Some(event) = stream.next().await {
        if let PrefillEvent::Done { .. } = event? {
            return Ok(began.elapsed());
        }
    }
    anyhow::bail!("the engine stopped")
}

fn greedy(max_tokens: u32, vocabulary: u32) -> anyhow::Result<Sampling> {
    let asked = Asked {
        max_tokens: Some(max_tokens.into()),
        temperature: Some(0.0),
        ignore_eos: true,
        ..Asked::default()
    };
    Ok(asked.checked(vocabulary, 0)?)
}

/// Different tokens for every `index`; the first few ids are special.
fn prompt(index: usize, tokens: u32, vocabulary: u32) -> Vec<u32> {
    let step = 7 + 2 * u32::try_from(index).unwrap_or_default();
    (0..tokens).map(|position| 16 + position.wrapping_mul(step) % (vocabulary - 16)).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
