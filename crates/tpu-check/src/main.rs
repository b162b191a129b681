//! `tpu-check`: compiles full-width programs for TPUs that are not there, and holds them to account.
//!
//! `make tpu-check` runs it. A job names a model config, a program of `programs` and a slice of TPUs; libtpu compiles it ahead of
//! time through `pjrt`, each in a child process because the compiler aborts on what it does not expect. What comes out is a
//! table and a JSON file: peak memory against the device's limit, collectives, large copies, the compiler's own cost.
//!
//! What it cannot tell: speed, numbers, or that the executable loads on hardware.

mod check;
mod child;
mod job;
mod launch;
mod report;
mod table;

use clap::Parser;

fn main() -> anyhow::Result<()> {
    let flags = check::Flags::parse();
    match flags.command {
        Some(check::Command::Compile(flags)) => child::run(&flags),
        None => check::run(&flags),
    }
}
