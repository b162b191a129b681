//! `tpu-check`: compiles full-width programs for TPUs that are not there, and holds them to account.
//!
//! `make tpu-check` runs it. A job names a model config, a program of `programs` and a slice of TPUs; libtpu compiles it ahead of
//! time through `pjrt`, each in a child process because the compiler aborts on what it does not expect. What comes out is a
//! table and a JSON file: peak memory against the device's limit, collectives, large copies, the compiler's own cost.
//!
//! What it cannot tell: speed, numbers, or that the executable loads on hardware.

mod child;
mod job;
mod launch;
mod report;
mod table;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Parser, Subcommand};

use job::Job;
use report::Line;

#[derive(Parser, Debug)]
#[command(about, version)]
struct Flags {
    #[command(subcommand)]
    command: Option<Command>,
    /// The list of jobs; configs are looked for beside it
    #[arg(long, default_value = "crates/tpu-check/jobs.json")]
    jobs: PathBuf,
    /// Run only the jobs whose name contains this
    #[arg(long, default_value = "")]
    only: String,
    /// Where the results go
    #[arg(long, default_value = "target/tpu-check.json")]
    json: PathBuf,
    /// Most seconds one compilation may take
    #[arg(long, default_value_t = 1200)]
    timeout: u64,
    /// Keep programs and optimised modules in this folder
    #[arg(long)]
    keep: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Compile one program of StableHLO text in this process
    Compile(child::Flags),
}

fn main() -> anyhow::Result<()> {
    let flags = Flags::parse();
    match flags.command {
        Some(Command::Compile(flags)) => child::run(&flags),
        None => check(&flags),
    }
}

fn check(flags: &Flags) -> anyhow::Result<()> {
    let jobs = Job::read(&flags.jobs)?;
    let jobs: Vec<_> = jobs.into_iter().filter(|job| job.name.contains(&flags.only)).collect();
    if jobs.is_empty() {
        bail!("no job's name contains {:?}", flags.only);
    }
    let libtpu = pjrt::libtpu_path().context("run `make libtpu`")?;
    let scratch = tempfile::tempdir()?;
    let folder = flags.keep.as_deref().unwrap_or_else(|| scratch.path());
    std::fs::create_dir_all(folder)?;
    let launcher = launch::Launcher { libtpu, timeout: Duration::from_secs(flags.timeout), folder };
    let mut lines = Vec::new();
    for job in jobs {
        // The table comes last; this says that something is being done.
        writeln!(std::io::stderr(), "{}", job.name)?;
        let (outcome, cost) = launcher.run(&job)?;
        let missed = job.expect.missed(&outcome);
        lines.push(Line { job, outcome, cost, missed });
        std::fs::write(&flags.json, serde_json::to_string_pretty(&lines)?)
            .with_context(|| format!("writing {}", flags.json.display()))?;
    }
    write!(std::io::stdout(), "{}", table::render(&lines))?;
    let failed = lines.iter().filter(|line| !line.missed.is_empty()).count();
    match failed {
        0 => Ok(()),
        failed => bail!("{failed} of {} jobs are not as they should be", lines.len()),
    }
}
