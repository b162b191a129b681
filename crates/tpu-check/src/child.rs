//! The child's part: one compilation in this very process, and its report in a file.

use std::path::PathBuf;

use anyhow::Context;
use pjrt::{Error, Plugin, Topology};

use crate::report::{Outcome, Report};

/// One program and where its report goes.
#[derive(clap::Args, Debug)]
pub(crate) struct Flags {
    /// The TPU compiler
    #[arg(long)]
    pub(crate) libtpu: PathBuf,
    /// The slice, such as tpu7x:2x2x4
    #[arg(long)]
    pub(crate) topology: String,
    /// Run the program on so many devices, the slice's first ones
    #[arg(long, default_value_t = 1)]
    pub(crate) devices: usize,
    /// StableHLO text
    #[arg(long)]
    pub(crate) program: PathBuf,
    /// Where the report goes
    #[arg(long)]
    pub(crate) report: PathBuf,
    /// Where the instructions of the optimised module go
    #[arg(long)]
    pub(crate) listing: Option<PathBuf>,
}

/// Compiles and reports. An error means that there is no report.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let text = std::fs::read(&flags.program).with_context(|| flags.program.display().to_string())?;
    let plugin = Plugin::load(&flags.libtpu)?;
    let topology = Topology::tpu(&plugin, flags.topology.parse()?)?;
    let options = match flags.devices {
        1 => topology.sharded_over(1),
        devices => topology.replicated_over(devices),
    };
    let outcome = match topology.compile(&text, &options) {
        Ok(compiled) => {
            if let (Some(path), Some(hlo)) = (&flags.listing, compiled.hlo()?) {
                std::fs::write(path, hlo.to_string())?;
            }
            Outcome::Compiled(Box::new(Report::of(&topology, flags.devices, &compiled)?))
        }
        Err(error @ Error::TooLarge { .. }) => Outcome::TooLarge(error.to_string()),
        Err(error) => Outcome::Refused(error.to_string()),
    };
    std::fs::write(&flags.report, serde_json::to_vec_pretty(&outcome)?)?;
    Ok(())
}
