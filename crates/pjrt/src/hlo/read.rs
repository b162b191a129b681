use super::{Computation, HloModule, Instruction, Layout};
use crate::dtype::{DType, Shape};
use crate::wire::{messages, number, numbers, text};

/// `xla.PrimitiveType::TUPLE`.
const TUPLE: u64 = 13;

/// The `HloModuleProto` in a serialized program of `format` (`hlo` or `hlo_with_config`).
pub(crate) fn module_bytes<'a>(format: &str, program: &'a [u8]) -> Option<&'a [u8]> {
    match format {
        "hlo" => Some(program),
        "hlo_with_config" => messages(program, 1).next(),
        _ => None,
    }
}

/// A `ShapeProto` of an array; none for tuples, tokens and types this room does not know.
pub(crate) fn shape(bytes: &[u8]) -> Option<Shape> {
    let dtype = DType::from_hlo(number(bytes, 2))?;
    let dims = numbers(bytes, 3)?.into_iter().map(i64::try_from).collect::<Result<Vec<_>, _>>().ok()?;
    Some(Shape::new(dtype, &dims))
}

impl HloModule {
    /// From a serialized module; none where it is another format or not a module.
    pub(crate) fn parse(format: &str, program: &[u8]) -> Option<Self> {
        let module = module_bytes(format, program)?;
        let computations = messages(module, 3).map(computation).collect::<Option<Vec<_>>>()?;
        let entry_id = number(module, 6);
        let entry = computations.iter().position(|computation| computation.id == entry_id)?;
        Some(Self { computations, entry })
    }
}

/// An `HloComputationProto`.
fn computation(bytes: &[u8]) -> Option<Computation> {
    let instructions = messages(bytes, 2).map(instruction).collect::<Option<Vec<_>>>()?;
    Some(Computation { id: number(bytes, 5), name: text(bytes, 1), instructions })
}

/// An `HloInstructionProto`.
fn instruction(bytes: &[u8]) -> Option<Instruction> {
    let mut found = Vec::new();
    arrays(messages(bytes, 3).next()?, &mut found);
    let (results, layouts) = found.into_iter().unzip();
    Some(Instruction {
        id: number(bytes, 35),
        name: text(bytes, 1),
        opcode: text(bytes, 2),
        results,
        layouts,
        source: messages(bytes, 7).next().map(|metadata| text(metadata, 2)).unwrap_or_default(),
        operands: numbers(bytes, 36)?,
        calls: numbers(bytes, 38)?,
        turns: turns(&text(bytes, 43)),
        constant: messages(bytes, 8).next().and_then(|literal| numbers(literal, 4)?.first().copied()),
    })
}

/// The arrays of a `ShapeProto`, in order, each with its layout.
fn arrays(bytes: &[u8], into: &mut Vec<(Shape, Layout)>) {
    let layout = || messages(bytes, 5).next().map(layout).unwrap_or_default();
    match number(bytes, 2) {
        TUPLE => messages(bytes, 4).for_each(|member| arrays(member, into)),
        _ => into.extend(shape(bytes).map(|shape| (shape, layout()))),
    }
}

/// A `LayoutProto`.
fn layout(bytes: &[u8]) -> Layout {
    Layout { order: numbers(bytes, 1).unwrap_or_default(), space: number(bytes, 8) }
}

/// `known_trip_count` of a loop's backend configuration, which is JSON: `{"known_trip_count":{"n":"23"}, ...}`.
fn turns(config: &str) -> Option<u64> {
    let (_, after) = config.split_once("\"known_trip_count\"")?;
    let digits = after.split(|c: char| !c.is_ascii_digit()).find(|run| !run.is_empty())?;
    digits.parse().ok()
}
