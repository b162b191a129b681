//! Running a program: on one device, or on several at once.

use std::sync::Arc;

use pjrt_sys as sys;

use crate::buffer::Buffer;
use crate::dtype::Shape;
use crate::event::Event;
use crate::executable::Executable;
use crate::plugin::call;
use crate::{Error, Result};

/// How to run a program this once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecuteOptions {
    /// Arguments to keep although the program donates them, by position. The program then copies them.
    pub non_donatable_indices: Vec<i64>,
}

/// A running or finished execution on one device.
#[derive(Debug)]
pub struct Execution {
    /// The outputs; usable as arguments at once, their contents follow.
    pub outputs: Vec<Buffer>,
    /// Ready when the execution is over on this device.
    pub done: Event,
}

impl Executable {
    /// Runs the program on its one device and returns the outputs without waiting for their contents.
    ///
    /// Arguments the program donates are deleted when this returns. Count, shapes and liveness of the arguments are checked
    /// before the plugin sees them.
    pub fn execute(&self, arguments: &[&Buffer]) -> Result<Vec<Buffer>> {
        let (mut outputs, _) = self.launch(&[arguments], &ExecuteOptions::default(), false)?;
        Ok(outputs.pop().unwrap_or_default())
    }

    /// As [`execute`](Self::execute), with options, and an event for the end of the execution.
    pub fn execute_with(&self, arguments: &[&Buffer], options: &ExecuteOptions) -> Result<Execution> {
        let mut executions = self.execute_sharded_with(&[arguments], options)?;
        executions.pop().ok_or_else(|| Error::argument("arguments", "the program runs on no device"))
    }

    /// Runs the program on all its devices: one list of arguments for each, in the order of [`devices`](Self::devices), and
    /// one list of outputs for each.
    pub fn execute_sharded<'a, L: AsRef<[&'a Buffer]>>(&self, arguments: &[L]) -> Result<Vec<Vec<Buffer>>> {
        let lists: Vec<_> = arguments.iter().map(AsRef::as_ref).collect();
        Ok(self.launch(&lists, &ExecuteOptions::default(), false)?.0)
    }

    /// As [`execute_sharded`](Self::execute_sharded), with options, and an event for each device.
    pub fn execute_sharded_with<'a, L: AsRef<[&'a Buffer]>>(
        &self,
        arguments: &[L],
        options: &ExecuteOptions,
    ) -> Result<Vec<Execution>> {
        let lists: Vec<_> = arguments.iter().map(AsRef::as_ref).collect();
        let (outputs, events) = self.launch(&lists, options, true)?;
        Ok(outputs.into_iter().zip(events).map(|(outputs, done)| Execution { outputs, done }).collect())
    }

    fn launch(
        &self,
        lists: &[&[&Buffer]],
        options: &ExecuteOptions,
        want_done: bool,
    ) -> Result<(Vec<Vec<Buffer>>, Vec<Event>)> {
        let count = self.check(lists, options)?;
        let plugin = self.client().plugin();
        let arguments: Vec<Vec<_>> =
            lists.iter().map(|list| list.iter().map(|buffer| buffer.raw()).collect()).collect();
        let argument_lists: Vec<_> = arguments.iter().map(Vec::as_ptr).collect();
        let mut outputs = vec![vec![std::ptr::null_mut(); self.num_outputs()]; lists.len()];
        let output_lists: Vec<_> = outputs.iter_mut().map(Vec::as_mut_ptr).collect();
        let mut events = vec![std::ptr::null_mut(); if want_done { lists.len() } else { 0 }];
        let mut execute_options = sys::PJRT_ExecuteOptions {
            non_donatable_input_indices: options.non_donatable_indices.as_ptr(),
            num_non_donatable_input_indices: options.non_donatable_indices.len(),
            ..Default::default()
        };
        let mut args = sys::PJRT_LoadedExecutable_Execute_Args {
            executable: self.loaded(),
            options: &raw mut execute_options,
            argument_lists: argument_lists.as_ptr(),
            num_devices: lists.len(),
            num_args: count,
            output_lists: output_lists.as_ptr(),
            device_complete_events: if want_done { events.as_mut_ptr() } else { std::ptr::null_mut() },
            ..Default::default()
        };
        // SAFETY: the lists have the lengths given, hold live buffers of this client, and live past the call.
        unsafe { call!(plugin, PJRT_LoadedExecutable_Execute, &mut args)? };
        let take = |(list, device): (Vec<_>, &usize)| {
            let adopt = |(raw, shape): (_, &Arc<Shape>)| {
                // SAFETY: the plugin handed the output over, and it has the shape the program returns, on this device.
                unsafe { Buffer::from_raw(self.client(), raw, Arc::clone(shape), *device) }
            };
            list.into_iter().zip(self.output_shapes()).map(adopt).collect()
        };
        let outputs = outputs.into_iter().zip(self.device_indices()).map(take).collect::<Result<_>>()?;
        // SAFETY: the plugin handed the events over.
        let events =
            events.into_iter().map(|raw| unsafe { Event::from_raw(plugin, raw) }).collect::<Result<_>>()?;
        Ok((outputs, events))
    }

    /// Everything that is known to make a plugin print, hang or abort. Returns the number of arguments.
    fn check(&self, lists: &[&[&Buffer]], options: &ExecuteOptions) -> Result<usize> {
        if lists.len() != self.device_indices().len() {
            let message = format!(
                "{} lists given, {} runs on {} devices",
                lists.len(),
                self.name(),
                self.device_indices().len()
            );
            return Err(Error::argument("arguments", message));
        }
        let count = lists.first().map_or(0, |list| list.len());
        let expected = self.signature().map_or(count, |signature| signature.parameters.len());
        if let Some(list) = lists.iter().find(|list| list.len() != expected) {
            let message = format!("{} given, {} takes {expected}", list.len(), self.name());
            return Err(Error::argument("arguments", message));
        }
        if let Some(index) =
            options.non_donatable_indices.iter().find(|index| !(0..expected as i64).contains(index))
        {
            return Err(Error::argument(
                "non_donatable_indices",
                format!("{index} is not an argument of {}", self.name()),
            ));
        }
        lists.iter().enumerate().try_for_each(|(device, list)| self.check_list(device, list, options))?;
        Ok(expected)
    }

    fn check_list(&self, device: usize, list: &[&Buffer], options: &ExecuteOptions) -> Result<()> {
        let place = |index: usize| match self.device_indices().len() {
            1 => format!("argument {index} of {}", self.name()),
            _ => format!("argument {index} of {} on device {device}", self.name()),
        };
        for (index, buffer) in list.iter().enumerate() {
            if !self.client().is(buffer.client()) {
                return Err(Error::argument(place(index), "the buffer belongs to another client"));
            }
            let home = self.device_indices()[device];
            if buffer.device_index() != home {
                let (found, home) =
                    (buffer.device().description(), self.client().devices()[home].description());
                return Err(Error::argument(
                    place(index),
                    format!("it lies on {found}, the program runs on {home}"),
                ));
            }
            if buffer.is_deleted() {
                return Err(Error::deleted(place(index)));
            }
        }
        let Some(signature) = self.signature() else {
            return Ok(());
        };
        for (index, (buffer, expected)) in list.iter().zip(&signature.parameters).enumerate() {
            if *buffer.shape() != **expected {
                return Err(Error::argument(
                    place(index),
                    format!("it is {}, the program takes {expected}", buffer.shape()),
                ));
            }
        }
        self.check_donations(list, &signature.donated, options)
            .map_err(|index| Error::argument(place(index), "it is donated and given more than once"))
    }

    /// The position of a donated argument that is also another argument: the plugin would wait for itself.
    fn check_donations(
        &self,
        list: &[&Buffer],
        donated: &[bool],
        options: &ExecuteOptions,
    ) -> std::result::Result<(), usize> {
        if !donated.contains(&true) {
            return Ok(());
        }
        let mut places: Vec<_> =
            list.iter().enumerate().map(|(index, buffer)| (buffer.raw(), index)).collect();
        places.sort_unstable();
        let lost = |index: usize| donated[index] && !options.non_donatable_indices.contains(&(index as i64));
        let twice = places.chunk_by(|a, b| a.0 == b.0).filter(|same| same.len() > 1);
        match twice.flatten().find(|(_, index)| lost(*index)) {
            Some((_, index)) => Err(*index),
            None => Ok(()),
        }
    }
}
