use model::StateShape;
use pjrt::{Buffer, Executable};
use programs::{ArgKind, Input, Mesh, Output, Program, ResKind, StateArray};
use prometheus_client::metrics::counter::Counter;

use crate::{DeviceFault, Facts};

mod arrays;
mod calls;
mod compile;
mod moves;
mod open;
mod place;
mod spread;
mod step;

#[cfg(test)]
mod tests;

use arrays::Arrays;
use compile::{Compiler, Key, Programs};
use place::Place;
use spread::Spread;

/// The devices behind a PJRT plugin: compiled programs, the weights and the state arrays. Several of them run the same
/// programs, each with its share of the heads and experts.
#[derive(Debug)]
pub(crate) struct PluginDevice {
    facts: Facts,
    place: Place,
    /// Each device's number.
    numbers: Spread,
    weights: Vec<Spread>,
    arrays: Arrays,
    programs: Programs,
    kept: Option<Kept>,
}

/// Inputs of the decode step that stay while the composition of the batch does.
#[derive(Debug)]
struct Kept {
    composition: u64,
    inputs: [(Input, Spread); 4],
}
