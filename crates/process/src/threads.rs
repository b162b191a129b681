//! How many threads a device plugin may use, and how much it says: both are read once, from the environment.

use std::{env, io, os::unix::process::CommandExt, process::Command};

const THREADS: &str = "PJRT_NPROC";
const LOG_LEVEL: &str = "TF_CPP_MIN_LOG_LEVEL";
const ERRORS_ONLY: &str = "2";

/// Gives the plugin `threads` threads (none: all cores) and lets it log errors only, unless the environment says
/// otherwise. A running program can't change its environment safely: where a variable differs, this process starts itself
/// again with it, under the same process id. Call it first.
pub fn limit(threads: Option<usize>) -> io::Result<()> {
    let mut missing = Vec::new();
    if let Some(threads) = threads.map(|threads| threads.to_string())
        && env::var(THREADS).as_ref() != Ok(&threads)
    {
        missing.push((THREADS, threads));
    }
    if env::var_os(LOG_LEVEL).is_none() {
        missing.push((LOG_LEVEL, ERRORS_ONLY.to_owned()));
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(Command::new(env::current_exe()?).args(env::args_os().skip(1)).envs(missing).exec())
}
