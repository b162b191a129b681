//! The engine alone, in this process: how long a decode step takes, and how fast prompts are read.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context;
use engine::{
    Engine, EngineConfig, EngineHandle, GenerateEvent, GenerateJob, Limits, Metrics, Namespace, PrefillEvent,
    PrefillJob, Role, default_ladder, drafts_of,
};
use futures::future::try_join_all;
use programs::sampling::{Asked, Sampling};
use serde::Serialize;
use telemetry::Meters;
use worker::Numerics;

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
    /// Of these steps, by rows a batch: a sequence's tokens a step, one and the accepted drafts.
    decode_step_tokens: BTreeMap<u32, f64>,
    drafts: u32,
    prefill_tokens_per_second: f64,
    prefill_chunk_tokens: u32,
}

/// Loads `folder` and times it.
pub(super) async fn run(folder: &Path, numerics: &Numerics) -> anyhow::Result<Steps> {
    let model = model::ModelConfig::from_dir(folder)?;
    let drafts = drafts_of(&model, numerics.drafts)?;
    let mut ladder = default_ladder(&model, drafts);
    ladder.batches = BATCHES.to_vec();
    ladder.slots = BATCHES[BATCHES.len() - 1];
    let chunk = ladder.chunks.last().copied().context("a ladder without chunks")?;
    let vocabulary = u32::try_from(model.vocabulary)?;
    let config = EngineConfig {
        model_dir: folder.to_path_buf(),
        plugin: pjrt::plugin_path()?,
        devices: None,
        role: Role::Both,
        ladder: Some(ladder),
        drafts: Some(drafts),
        float: numerics.float.into(),
        int8: numerics.int8,
        cache_dir: Some(PathBuf::from(".tools/cache")),
        poison: false,
        limits: Limits::default(),
        prefix: None,
    };
    let engine = Engine::start(config, Meters::new().register(Metrics::register), |_| {})?;
    let handle = engine.handle();
    let (mut decode_step_seconds, mut decode_step_tokens) = (BTreeMap::new(), BTreeMap::new());
    for batch in BATCHES {
        let (step, tokens) = decode_step(&handle, batch, drafts, vocabulary).await?;
        decode_step_seconds.insert(batch, step.as_secs_f64());
        decode_step_tokens.insert(batch, tokens);
    }
    let mut speeds = Vec::new();
    for index in 0..PROMPTS {
        let prompt = prompt(index, chunk * 8, vocabulary);
        speeds.push(f64::from(chunk * 8) / prefill(&handle, prompt).await?.as_secs_f64());
    }
    Ok(Steps {
        decode_step_seconds,
        decode_step_tokens,
        drafts,
        prefill_tokens_per_second: median(speeds),
        prefill_chunk_tokens: chunk,
    })
}

/// Of sequences that all run at once, the median time between two events, which are a step each, and the mean of the tokens
/// that one brings.
async fn decode_step(
    handle: &EngineHandle,
    batch: u32,
    drafts: u32,
    vocabulary: u32,
) -> anyhow::Result<(Duration, f64)> {
    let steps = try_join_all((0..batch).map(|row| async move {
        let mut stream = handle.generate(GenerateJob {
            request_id: format!("row-{row}"),
            prompt: prompt(row as usize, CONTEXT, vocabulary),
            namespace: Namespace::of(b"", b""),
            sampling: greedy(u32::try_from(WARM + TIMED)? * (1 + drafts), vocabulary)?,
            end_tokens: Vec::new(),
            priority: 0,
            deadline: None,
        })?;
        let mut times = Vec::with_capacity(WARM + TIMED);
        while let Some(event) = stream.next().await {
            if let GenerateEvent::Tokens { tokens, .. } = event? {
                times.push((Instant::now(), tokens.len()));
            }
        }
        // all sequences have at least so many steps, however many drafts are accepted
        let timed = times.windows(2).skip(WARM).take(TIMED);
        anyhow::Ok(timed.map(|pair| (pair[1].0 - pair[0].0, pair[1].1)).collect::<Vec<_>>())
    }))
    .await?
    .concat();
    let tokens: usize = steps.iter().map(|&(_, tokens)| tokens).sum();
    let seconds = steps.iter().map(|(gap, _)| gap.as_secs_f64()).collect();
    Ok((Duration::from_secs_f64(median(seconds)), tokens as f64 / steps.len().max(1) as f64))
}

async fn prefill(handle: &EngineHandle, prompt: Vec<u32>) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let mut stream = handle.prefill(PrefillJob {
        request_id: "prompt".to_owned(),
        sampling: greedy(1, u32::MAX)?,
        prompt,
        namespace: Namespace::of(b"", b""),
        output_tokens: 0,
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
