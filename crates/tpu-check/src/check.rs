//! The parent's part: the jobs of a list, their results as a table and as JSON.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Parser, Subcommand};

use crate::job::Job;
use crate::report::Line;
use crate::{child, launch, table};

#[derive(Parser, Debug)]
#[command(about, version)]
pub(crate) struct Flags {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
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
pub(crate) enum Command {
    /// Compile one program of StableHLO text in this process
    Compile(child::Flags),
}

/// Runs the jobs one after another, and says which are not as they should be.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
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
