//! `tandem`: a whole local cluster ([`up`]), text from a prompt ([`generate`]), and how fast it is ([`bench`]).

pub mod bench;
pub mod generate;
pub mod router;
pub mod up;

use clap::{Parser, Subcommand};

/// Serve hybrid linear-attention models from prefill and decode workers.
#[derive(Debug, Parser)]
#[command(name = "tandem", version)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

impl Command {
    /// Whether a model runs in this process.
    pub fn runs_a_model(&self) -> bool {
        match self {
            Self::Up(_) => false,
            Self::Generate(flags) => flags.single_process,
            Self::Bench(flags) => flags.steps,
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a local cluster as separate processes; Ctrl-C stops it
    Up(up::Flags),
    /// Continue a prompt
    Generate(generate::Flags),
    /// Measure a cluster: TTFT, ITL, throughput, goodput
    Bench(bench::Flags),
}
