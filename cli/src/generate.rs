//! Continue a prompt, through a cluster or within this process.

mod cluster;
mod local;
mod output;
mod request;

use std::path::PathBuf;

use anyhow::Context;
use worker::Numerics;

use self::{output::Output, request::Request};
use crate::router;

/// Flags of `tandem generate`.
#[derive(Debug, Clone, clap::Args)]
pub struct Flags {
    /// The prompt; none with --input
    #[arg(required_unless_present = "input")]
    pub prompt: Option<String>,
    /// The router
    #[command(flatten)]
    pub router: router::Flags,
    /// Model to ask for [default: the router's first]
    #[arg(long)]
    pub model: Option<String>,
    /// Most tokens to generate
    #[arg(long, default_value_t = 128)]
    pub max_tokens: u32,
    /// 0 is greedy
    #[arg(long, default_value_t = 1.0)]
    pub temperature: f32,
    /// Seed of the draws [default: a random one]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Run the model here, without a cluster
    #[arg(long)]
    pub single_process: bool,
    /// Folder of the checkpoint, with --single-process
    #[arg(long, env = "TANDEM_MODEL", default_value = "models/k3-demo")]
    pub model_dir: PathBuf,
    /// What the model computes, with --single-process
    #[command(flatten)]
    pub numerics: Numerics,
    /// File of JSON lines, one request each, instead of a prompt (- for stdin): `prompt` or `prompt_ids`, and any of
    /// max_tokens, temperature, top_p, top_k, min_p, seed, ignore_eos
    #[arg(long, conflicts_with = "prompt")]
    pub input: Option<PathBuf>,
    /// Print one JSON object a request instead of text
    #[arg(long)]
    pub json: bool,
}

/// Text to stdout as it comes, timing to stderr.
pub async fn run(flags: Flags) -> anyhow::Result<()> {
    let requests = match &flags.input {
        Some(path) => request::read(path)?,
        None => vec![Request::prompt(flags.prompt.clone().unwrap_or_default())],
    };
    let requests: Vec<Request> = requests.into_iter().map(|request| request.or(&flags)).collect();
    let mut output = Output::new(flags.json);
    if flags.single_process {
        let local = local::Local::start(&flags.model_dir, &flags.numerics)?;
        for request in &requests {
            local.generate(request, &mut output).await.context("generation failed")?;
        }
        return Ok(());
    }
    let mut cluster = cluster::Cluster::connect(&flags.router, flags.model.as_deref()).await?;
    for request in requests {
        cluster.generate(request, &mut output).await?;
    }
    Ok(())
}
