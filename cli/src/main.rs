//! The `tandem` program.

use clap::Parser;
use cli::{Cli, Command};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Up(flags) => cli::up::run(flags).await,
        Command::Generate(flags) => cli::generate::run(flags).await,
        Command::Bench(flags) => cli::bench::run(flags).await,
    }
}
