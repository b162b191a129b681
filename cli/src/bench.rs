//! How fast a cluster is: closed loop (`--concurrency`) or open loop (`--rate`), by gRPC.

mod load;
mod report;
mod steps;
mod trace;

use std::{path::PathBuf, time::Duration};

use anyhow::bail;
use proto::v1::ListModelsRequest;
use worker::Numerics;

use self::{
    load::Load,
    report::{Report, Slo},
    trace::Request,
};
use crate::router;

/// Flags of `tandem bench`.
#[derive(Debug, Clone, clap::Args)]
pub struct Flags {
    /// The router
    #[command(flatten)]
    pub router: router::Flags,
    /// Model to ask for [default: the router's only one]
    #[arg(long)]
    pub model: Option<String>,
    /// Requests in flight (closed loop)
    #[arg(long, default_value_t = 4, conflicts_with = "rate")]
    pub concurrency: usize,
    /// Requests a second, Poisson arrivals (open loop)
    #[arg(long)]
    pub rate: Option<f64>,
    /// Requests in all
    #[arg(long, default_value_t = 64)]
    pub requests: usize,
    /// Tokens a prompt
    #[arg(long, default_value_t = 256)]
    pub prompt_tokens: usize,
    /// Tokens to generate for each
    #[arg(long, default_value_t = 64)]
    pub max_tokens: u32,
    /// Lengths (and arrivals, without --rate and --concurrency) from a trace: Mooncake's JSONL or Azure's CSV
    #[arg(long)]
    pub trace: Option<PathBuf>,
    /// Goodput counts requests with a TTFT under this many milliseconds
    #[arg(long, default_value_t = 500.0)]
    pub slo_ttft: f64,
    /// Goodput counts requests with a mean ITL under this many milliseconds
    #[arg(long, default_value_t = 50.0)]
    pub slo_itl: f64,
    /// Time the engine's own steps in this process instead of a cluster; prints JSON
    #[arg(long)]
    pub steps: bool,
    /// Folder of the checkpoint, with --steps
    #[arg(long, env = "TANDEM_MODEL", default_value = "models/k3-demo")]
    pub model_dir: PathBuf,
    /// What the model computes, with --steps
    #[command(flatten)]
    pub numerics: Numerics,
    /// Seed of prompts and arrivals
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Runs the load and prints the report.
#[allow(clippy::print_stdout, reason = "this is the program's answer")]
pub async fn run(flags: Flags) -> anyhow::Result<()> {
    if flags.steps {
        println!("{}", serde_json::to_string_pretty(&steps::run(&flags.model_dir, &flags.numerics).await?)?);
        return Ok(());
    }
    let mut client = flags.router.connect().await?;
    let models = client.list_models(ListModelsRequest {}).await?.into_inner().models;
    let model = match &flags.model {
        Some(name) => models.into_iter().find(|model| model.name == *name),
        None => models.into_iter().next(),
    };
    let Some(model) = model else { bail!("the router does not serve the model {:?}", flags.model) };
    let requests = match &flags.trace {
        Some(path) => trace::read(path, flags.requests, model.context_length)?,
        None => {
            vec![Request { at: None, prompt: flags.prompt_tokens, output: flags.max_tokens }; flags.requests]
        }
    };
    let load = Load { client, model, seed: flags.seed };
    let samples = match flags.rate {
        Some(rate) if rate > 0.0 => load.open(requests, rate).await,
        Some(_) => bail!("--rate must be above 0"),
        None => load.closed(requests, flags.concurrency.max(1)).await,
    };
    let millis = |value: f64| Duration::from_secs_f64(value / 1e3);
    let report = Report::of(&samples, Slo { ttft: millis(flags.slo_ttft), itl: millis(flags.slo_itl) })?;
    if flags.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("{report}");
    }
    Ok(())
}
