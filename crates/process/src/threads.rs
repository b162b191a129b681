//! How many threads the device plugin may use.

use std::{env, io, os::unix::process::CommandExt, process::Command};

/// What a PJRT plugin reads, once, when its client is made.
pub const VARIABLE: &str = "PJRT_NPROC";

/// Gives the plugin `threads` threads. It reads them from the environment, which a running program can't change safely:
/// where the variable says something else this process starts itself again, under the same process id. Call it first.
pub fn limit(threads: usize) -> io::Result<()> {
    let wanted = threads.to_string();
    if env::var(VARIABLE).is_ok_and(|now| now == wanted) {
        return Ok(());
    }
    Err(Command::new(env::current_exe()?).args(env::args_os().skip(1)).env(VARIABLE, wanted).exec())
}
