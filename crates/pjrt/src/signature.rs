//! What a compiled program takes and returns, read from its optimised HLO.
//!
//! PJRT tells the shapes of outputs but not those of parameters, nor which of them are donated. The HLO module does, also for an
//! executable that was deserialized. Field numbers are those of `xla/service/hlo.proto` and `xla/xla_data.proto`.

use std::sync::Arc;

use crate::dtype::{DType, Shape};
use crate::wire::{Field, Reader};

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
        match format {
            "hlo" => module(program),
            "hlo_with_config" => module(messages(program, 1).next()?),
            _ => None,
        }
    }
}

/// The sub-messages with one field number.
fn messages(bytes: &[u8], wanted: u32) -> impl Iterator<Item = &[u8]> {
    Reader(bytes).filter_map(move |field| match field {
        Some(Field::Bytes(number, value)) if number == wanted => Some(value),
        _ => None,
    })
}

/// The last value of a number field, zero where it is absent.
fn number(bytes: &[u8], wanted: u32) -> u64 {
    let values = Reader(bytes).filter_map(|field| match field {
        Some(Field::Varint(number, value)) if number == wanted => Some(value),
        _ => None,
    });
    values.last().unwrap_or(0)
}

/// An `HloModuleProto`.
fn module(bytes: &[u8]) -> Option<Signature> {
    const PROGRAM_SHAPE: u32 = 4;
    const INPUT_OUTPUT_ALIAS: u32 = 8;
    const BUFFER_DONOR: u32 = 18;
    let program = messages(bytes, PROGRAM_SHAPE).next()?;
    let parameters: Vec<_> = messages(program, 1).map(shape).collect::<Option<_>>()?;
    let result = messages(program, 2).next()?;
    let results = match number(result, 2) {
        TUPLE => messages(result, 4).map(shape).collect::<Option<_>>()?,
        _ => vec![shape(result)?],
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

/// A `ShapeProto` of an array.
fn shape(bytes: &[u8]) -> Option<Arc<Shape>> {
    const DIMENSIONS: u32 = 3;
    let dtype = DType::from_hlo(number(bytes, 2))?;
    let mut dims = Vec::new();
    for field in Reader(bytes) {
        match field? {
            Field::Varint(DIMENSIONS, dim) => dims.push(i64::try_from(dim).ok()?),
            Field::Bytes(DIMENSIONS, packed) => {
                let mut list = Reader(packed);
                while !list.0.is_empty() {
                    dims.push(i64::try_from(list.take_varint()?).ok()?);
                }
            }
            _ => {}
        }
    }
    Some(Arc::new(Shape { dtype, dims: dims.into() }))
}
