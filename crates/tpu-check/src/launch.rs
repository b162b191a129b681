//! The parent's part: a child for each job, watched and timed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::resource::{UsageWho, getrusage};

use crate::job::Job;
use crate::report::{Cost, Outcome};

/// How often a child is looked at.
const GLANCE: Duration = Duration::from_millis(50);
/// Lines of a dead child's last words that are kept.
const LAST_WORDS: usize = 12;

/// Starts children.
#[derive(Debug)]
pub(crate) struct Launcher<'a> {
    /// The TPU compiler.
    pub(crate) libtpu: PathBuf,
    /// Most time one compilation may take.
    pub(crate) timeout: Duration,
    /// Where programs and reports lie.
    pub(crate) folder: &'a Path,
}

/// A job's files.
struct Files {
    program: PathBuf,
    report: PathBuf,
    listing: PathBuf,
    stderr: PathBuf,
}

impl Launcher<'_> {
    /// Makes the job's program and compiles it in a child.
    pub(crate) fn run(&self, job: &Job) -> anyhow::Result<(Outcome, Cost)> {
        let source = job.source()?;
        let files = self.files(&job.name);
        std::fs::write(&files.program, &source.text)?;
        if files.report.exists() {
            std::fs::remove_file(&files.report)?;
        }
        let (before, started) = (children_cpu()?, Instant::now());
        let mut child = self.start(job, source.devices, &files)?;
        let (status, peak_resident) = watch(&mut child, self.timeout)?;
        let cost = Cost {
            cpu_seconds: children_cpu()? - before,
            wall_seconds: started.elapsed().as_secs_f64(),
            peak_resident,
        };
        let outcome = match status {
            None => Outcome::TimedOut,
            Some(status) => match std::fs::read(&files.report) {
                Ok(report) => serde_json::from_slice(&report)?,
                Err(_) => Outcome::Died(format!("{status}; {}", last_words(&files.stderr))),
            },
        };
        Ok((outcome, cost))
    }

    fn files(&self, job: &str) -> Files {
        let stem: String = job.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let file = |end: &str| self.folder.join(format!("{stem}.{end}"));
        Files { program: file("mlir"), report: file("json"), listing: file("hlo"), stderr: file("stderr") }
    }

    fn start(&self, job: &Job, devices: usize, files: &Files) -> anyhow::Result<Child> {
        let stderr = File::create(&files.stderr)?;
        Command::new(std::env::current_exe()?)
            .arg("compile")
            .arg("--libtpu")
            .arg(&self.libtpu)
            .args(["--topology", &job.slice()?.to_string()])
            .args(["--devices", &devices.to_string()])
            .arg("--program")
            .arg(&files.program)
            .arg("--report")
            .arg(&files.report)
            .arg("--listing")
            .arg(&files.listing)
            // Without it libtpu asks a cloud's metadata server for minutes.
            .env("TPU_SKIP_MDS_QUERY", "1")
            // Without it a second process that loads libtpu dies on a lock file.
            .env("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
            .env("LIBTPU_INIT_ARGS", job.init_args.join(" "))
            .env(pjrt::QUIET_LOG.0, pjrt::QUIET_LOG.1)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .context("starting a child")
    }
}

/// Waits for the child, or kills it when its time is over; how it ended, and the most memory it was seen with.
fn watch(child: &mut Child, timeout: Duration) -> anyhow::Result<(Option<std::process::ExitStatus>, u64)> {
    let deadline = Instant::now() + timeout;
    let mut peak = 0;
    loop {
        peak = peak.max(peak_resident(child.id()).unwrap_or(0));
        if let Some(status) = child.try_wait()? {
            return Ok((Some(status), peak));
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok((None, peak));
        }
        std::thread::sleep(GLANCE);
    }
}

/// Bytes at the process's high-water mark.
fn peak_resident(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// CPU seconds of all children that have ended.
fn children_cpu() -> anyhow::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 * 1e-6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

fn last_words(stderr: &Path) -> String {
    let text =
        std::fs::read(stderr).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    // An abort says why first, then prints its stack.
    let said = lines.iter().position(|line| line.starts_with('F') || line.contains("Check failed"));
    let from = said.unwrap_or_else(|| lines.len().saturating_sub(LAST_WORDS));
    lines[from..].iter().take(LAST_WORDS).copied().collect::<Vec<_>>().join("\n")
}
