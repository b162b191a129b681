use super::compile::Bind;
use super::{Buffer, DeviceFault, Input, Key, Output, PluginDevice, ResKind, Spread};
use crate::Error;

/// What a program gave back besides the state arrays.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    values: Vec<(Output, Spread)>,
}

impl Outputs {
    /// An output that all devices have alike on the host, once it is there.
    pub(super) fn read<T: pjrt::Element>(&self, what: Output) -> Result<Vec<T>, Error> {
        Ok(self.get(what)?.read()?)
    }

    /// An output of which each device has its share along an axis.
    pub(super) fn read_cut(&self, what: Output, axis: usize) -> Result<Vec<f32>, Error> {
        Ok(self.get(what)?.read_cut(axis)?)
    }

    fn get(&self, what: Output) -> Result<&Spread, Error> {
        let found = self.values.iter().find(|(kind, _)| *kind == what);
        Ok(found.map(|(_, spread)| spread).ok_or_else(|| missing(format!("output {what:?}")))?)
    }
}

fn missing(argument: String) -> pjrt::Error {
    pjrt::Error::Argument { argument, message: "the program and the engine do not agree".to_owned() }
}

impl PluginDevice {
    /// Runs a program: binds weights, state arrays and inputs by what they mean, and puts the arrays it returns in place of
    /// those it took. Returns before the program is done.
    pub(super) fn call(&mut self, key: Key, inputs: &[(Input, &Spread)]) -> Result<Outputs, Error> {
        let bound = self.programs.get(key)?;
        let mut arguments: Vec<&Spread> = Vec::with_capacity(bound.arguments.len());
        for bind in &bound.arguments {
            arguments.push(match bind {
                Bind::Weight(index) => {
                    self.weights.get(*index).ok_or_else(|| missing(format!("weight {index}")))?
                }
                Bind::State(what) => self.arrays.get(*what)?,
                Bind::Input(Input::Share) => &self.numbers,
                Bind::Input(what) => {
                    let given = inputs.iter().find(|(input, _)| input == what);
                    given.map(|(_, spread)| *spread).ok_or_else(|| missing(format!("input {what:?}")))?
                }
            });
        }
        let on = |device: usize| arguments.iter().map(|spread| &spread.each()[device]).collect();
        let lists: Vec<Vec<&Buffer>> = (0..self.place.devices().len()).map(on).collect();
        let results = Spread::of_results(bound.executable.execute_sharded(&lists)?);
        let mut outputs = Outputs::default();
        for (what, spread) in bound.results.iter().zip(results) {
            match what {
                ResKind::State(array) => self.arrays.replace(*array, spread),
                ResKind::Output(output) => outputs.values.push((*output, spread)),
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
