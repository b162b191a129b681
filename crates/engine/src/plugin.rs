use model::StateShape;
use pjrt::{Buffer, Client, Element, Executable};
use programs::{ArgKind, Input, Mesh, Output, Program, ResKind, StateArray};
use prometheus_client::metrics::counter::Counter;

use crate::{DeviceFault, Facts};

mod arrays;
mod calls;
mod compile;
mod moves;
mod open;
mod step;

use arrays::Arrays;
use compile::{Compiler, Key, Programs};

/// The device behind a PJRT plugin: compiled programs, the weights and the state arrays.
#[derive(Debug)]
pub(crate) struct PluginDevice {
    facts: Facts,
    place: Place,
    weights: Vec<Buffer>,
    arrays: Arrays,
    programs: Programs,
    kept: Option<Kept>,
}

/// The client's first device.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    client: Client,
}

impl Place {
    fn device(&self) -> Result<&pjrt::Device, pjrt::Error> {
        self.client.devices().first().ok_or_else(|| pjrt::Error::Argument {
            argument: "plugin".to_owned(),
            message: "has no device".to_owned(),
        })
    }

    fn put<T: Element>(&self, elements: &[T], dims: &[i64]) -> Result<Buffer, pjrt::Error> {
        self.client.buffer_from_slice(elements, dims, self.device()?)
    }

    fn put_scalar(&self, value: u32) -> Result<Buffer, pjrt::Error> {
        self.put(&[i32::try_from(value).unwrap_or(i32::MAX)], &[])
    }
}

/// Inputs of the decode step that stay while the composition of the batch does.
#[derive(Debug)]
struct Kept {
    composition: u64,
    inputs: [(Input, Buffer); 4],
}
