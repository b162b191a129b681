use super::compile::Bind;
use super::{Buffer, DeviceFault, Input, Key, Output, PluginDevice, ResKind};
use crate::Error;

/// What a program gave back besides the state arrays.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    values: Vec<(Output, Buffer)>,
}

impl Outputs {
    /// An output on the host, once it is there.
    pub(super) fn read<T: pjrt::Element>(&self, what: Output) -> Result<Vec<T>, Error> {
        let found = self.values.iter().find(|(kind, _)| *kind == what);
        let (_, buffer) = found.ok_or_else(|| missing(format!("output {what:?}")))?;
        Ok(buffer.to_vec()?)
    }
}

fn missing(argument: String) -> pjrt::Error {
    pjrt::Error::Argument { argument, message: "the program and the engine do not agree".to_owned() }
}

impl PluginDevice {
    /// Runs a program: binds weights, state arrays and inputs by what they mean, and puts the arrays it returns in place of
    /// those it took. Returns before the program is done.
    pub(super) fn call(&mut self, key: Key, inputs: &[(Input, &Buffer)]) -> Result<Outputs, Error> {
        let bound = self.programs.get(key)?;
        let mut arguments = Vec::with_capacity(bound.arguments.len());
        for bind in &bound.arguments {
            arguments.push(match bind {
                Bind::Weight(index) => {
                    self.weights.get(*index).ok_or_else(|| missing(format!("weight {index}")))?
                }
                Bind::State(what) => self.arrays.get(*what)?,
                Bind::Input(what) => {
                    let given = inputs.iter().find(|(input, _)| input == what);
                    given.map(|(_, buffer)| *buffer).ok_or_else(|| missing(format!("input {what:?}")))?
                }
            });
        }
        let results = bound.executable.execute(&arguments)?;
        let mut outputs = Outputs::default();
        for (what, buffer) in bound.results.iter().zip(results) {
            match what {
                ResKind::State(array) => self.arrays.replace(*array, buffer),
                ResKind::Output(output) => outputs.values.push((*output, buffer)),
            }
        }
        Ok(outputs)
    }

    /// Finds out what a failure left, and makes the state arrays anew if it took any of them.
    pub(super) fn fault(&mut self, error: &Error) -> DeviceFault {
        self.kept = None;
        let mut fault = DeviceFault { message: error.to_string(), lost_state: !self.arrays.are_whole() };
        if fault.lost_state
            && let Err(again) = self.arrays.renew(&self.place)
        {
            fault.message = format!("{}; new state arrays: {again}", fault.message);
        }
        fault
    }
}
