//! The `tandem` program.

use clap::Parser;
use cli::{Cli, Command};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let command = Cli::parse().command;
    if command.runs_a_model() {
        process::threads::limit(None)?;
    }
    match command {
        Command::Up(flags) => cli::up::run(flags).await,
        Command::Generate(flags) => cli::generate::run(flags).await,
        Command::Bench(flags) => cli::bench::run(flags).await,
    }
}
