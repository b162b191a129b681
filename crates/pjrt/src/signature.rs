//! What a compiled program takes and returns, read from its optimised HLO.
//!
//! PJRT tells the shapes of outputs but not those of parameters, nor which of them are donated. The HLO module does, also for an
//! executable that was deserialized. Field numbers are those of `xla/service/hlo.proto` and `xla/xla_data.proto`.

use std::sync::Arc;

use crate::dtype::Shape;
use crate::hlo::{module_bytes, shape};
use crate::wire::{messages, number};

/// Parameters and results of a program, per device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Shapes of the arguments.
    pub parameters: Vec<Arc<Shape>>,
    /// Shapes of the outputs.
    pub results: Vec<Arc<Shape>>,
    /// Which arguments an execution deletes.
    pub donated: Vec<bool>,
}

impl Signature {
    /// From a serialized module in `format` (`hlo` or `hlo_with_config`). `None` where it is another format or holds a type
    /// this room does not know.
    pub(crate) fn parse(format: &str, program: &[u8]) -> Option<Self> {
        module(module_bytes(format, program)?)
    }
}

/// An `HloModuleProto`.
fn module(bytes: &[u8]) -> Option<Signature> {
    const PROGRAM_SHAPE: u32 = 4;
    const INPUT_OUTPUT_ALIAS: u32 = 8;
    const BUFFER_DONOR: u32 = 18;
    let program = messages(bytes, PROGRAM_SHAPE).next()?;
    let parameters: Vec<_> = messages(program, 1).map(array).collect::<Option<_>>()?;
    let result = messages(program, 2).next()?;
    let results = match number(result, 2) {
        TUPLE => messages(result, 4).map(array).collect::<Option<_>>()?,
        _ => vec![array(result)?],
    };
    let mut donated = vec![false; parameters.len()];
    for (list, parameter) in [(INPUT_OUTPUT_ALIAS, 2), (BUFFER_DONOR, 1)] {
        for entry in messages(bytes, list).flat_map(|list| messages(list, 1)) {
            let index = usize::try_from(number(entry, parameter)).ok()?;
            *donated.get_mut(index)? = true;
        }
    }
    Some(Signature { parameters, results, donated })
}

/// `xla.PrimitiveType::TUPLE`.
const TUPLE: u64 = 13;

fn array(bytes: &[u8]) -> Option<Arc<Shape>> {
    shape(bytes).map(Arc::new)
}
