//! Generation within this process: the same engine, without a cluster around it.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::Context;
use engine::{
    DraftCounts, EndReason, Engine, EngineConfig, GenerateEvent, GenerateJob, GenerateStream, Limits,
    Metrics, Namespace, Role, default_ladder, drafts_of,
};
use indicatif::{ProgressBar, ProgressStyle};
use proto::v1::{Timing, Usage};
use telemetry::Meters;
use text::Tokenizer;
use worker::Numerics;

use super::{
    output::{Ended, Output},
    request::Request,
};

/// A loaded model.
pub(super) struct Local {
    engine: Engine,
    tokenizer: Tokenizer,
    end_tokens: Vec<u32>,
}

impl Local {
    /// Loads and compiles, with a progress bar on a terminal.
    pub(super) fn start(folder: &Path, numerics: &Numerics) -> anyhow::Result<Self> {
        let model = model::ModelConfig::from_dir(folder)?;
        let bar = ProgressBar::new(1);
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {wide_msg}") {
            bar.set_style(style);
        }
        let drafts = drafts_of(&model, numerics.drafts)?;
        let mut ladder = default_ladder(&model, drafts);
        // One request at a time: the smallest batch is all it takes.
        ladder.batches.truncate(1);
        ladder.slots = ladder.batches[0];
        ladder.pages = 2 * (ladder.context + drafts).div_ceil(ladder.page_tokens);
        let config = EngineConfig {
            model_dir: folder.to_path_buf(),
            plugin: pjrt::plugin_path().context("no PJRT plugin")?,
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
        let metrics = Meters::new().register(Metrics::register);
        let engine = Engine::start(config, metrics, |progress| {
            bar.set_length(progress.total as u64);
            bar.set_position(progress.done as u64);
            bar.set_message(progress.what);
        })?;
        bar.finish_and_clear();
        let tokenizer = Tokenizer::open(folder)?;
        let mut end_tokens = model.eos;
        end_tokens.extend(tokenizer.end_tokens());
        Ok(Self { engine, tokenizer, end_tokens })
    }

    pub(super) async fn generate(&self, request: &Request, output: &mut Output) -> anyhow::Result<()> {
        let prompt = match &request.prompt_ids {
            Some(ids) => ids.clone(),
            None => self.tokenizer.encode(request.prompt.as_deref().unwrap_or_default())?,
        };
        let prompt_tokens = u32::try_from(prompt.len()).context("prompt: too long")?;
        let began = Instant::now();
        let stream = self.engine.handle().generate(GenerateJob {
            request_id: "local".to_owned(),
            prompt,
            namespace: Namespace::of(b"", b""),
            sampling: request.asked().checked(self.tokenizer.vocabulary_size(), rand::random())?,
            end_tokens: self.end_tokens.clone(),
            priority: 0,
            deadline: None,
        })?;
        let (finish, usage, timing) = self.relay(stream, began, output).await?;
        output.end(&Ended::new(finish.to_owned(), &Usage { prompt_tokens, ..usage }, timing))
    }

    async fn relay(
        &self,
        mut stream: GenerateStream,
        began: Instant,
        output: &mut Output,
    ) -> anyhow::Result<(&'static str, Usage, Timing)> {
        let mut decoder = self.tokenizer.decoder();
        let (mut timing, mut counts) = (Timing::default(), DraftCounts::default());
        while let Some(event) = stream.next().await {
            match event? {
                GenerateEvent::Tokens { tokens, drafts, .. } => {
                    counts += drafts;
                    for token in tokens {
                        let text = decoder.push(token.id)?.unwrap_or_default();
                        if timing.first_token == 0.0 {
                            timing.first_token = began.elapsed().as_secs_f64();
                        }
                        output.delta(&[token.id], &text)?;
                    }
                }
                GenerateEvent::Ended { reason, prefill } => {
                    output.delta(&[], &decoder.finish()?.unwrap_or_default())?;
                    timing.queue = prefill.queued.as_secs_f64();
                    timing.prefill = prefill.computed.as_secs_f64();
                    timing.total = began.elapsed().as_secs_f64();
                    let finish = match reason {
                        EndReason::EndToken(_) => "STOP",
                        EndReason::Length => "LENGTH",
                    };
                    let DraftCounts { verified: drafted_tokens, accepted: accepted_tokens } = counts;
                    let usage = Usage { drafted_tokens, accepted_tokens, ..Usage::default() };
                    return Ok((finish, usage, timing));
                }
            }
        }
        anyhow::bail!("the engine stopped")
    }
}
