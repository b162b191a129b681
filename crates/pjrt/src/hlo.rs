//! An optimised module: what the compiler made of a program, as far as one asks how devices talk and what is copied.
//!
//! Field numbers are those of `xla/service/hlo.proto` and `xla/xla_data.proto`.

mod read;
mod survey;

pub(crate) use read::{module_bytes, shape};
pub use survey::{Collective, CollectiveKind, Copied};

use std::fmt;

use crate::dtype::Shape;

/// A module as the compiler left it, for one device of those it runs on.
#[derive(Clone, Debug)]
pub struct HloModule {
    computations: Vec<Computation>,
    /// Position of the entry computation.
    entry: usize,
}

/// Instructions that run one after another: the program itself, a loop's body, what is fused into one kernel.
#[derive(Clone, Debug)]
pub struct Computation {
    id: u64,
    /// Its name in the module.
    pub name: String,
    /// Operands come before their users.
    pub instructions: Vec<Instruction>,
}

/// One operation.
#[derive(Clone, Debug)]
pub struct Instruction {
    id: u64,
    /// Its name in the module.
    pub name: String,
    /// Such as `fusion`, `copy` or `all-reduce-start`.
    pub opcode: String,
    /// The arrays it results in: one, or the members of a tuple at any depth. Tokens and unknown types are left out.
    pub results: Vec<Shape>,
    /// Where it comes from in the source program, `""` where unknown.
    pub source: String,
    /// How each result lies in memory.
    layouts: Vec<Layout>,
    operands: Vec<u64>,
    calls: Vec<u64>,
    /// Turns of a loop, where the compiler wrote them down.
    turns: Option<u64>,
    /// Value of an s32 constant, of its first element where it has several.
    constant: Option<u64>,
}

/// How an array lies in memory.
#[derive(Clone, Debug, Default)]
struct Layout {
    /// Axes, the fastest running first.
    order: Vec<u64>,
    /// 0 is the device's main memory.
    space: u64,
}

impl HloModule {
    /// The program itself.
    pub fn entry(&self) -> &Computation {
        &self.computations[self.entry]
    }

    /// Everything: the program, bodies, fusions.
    pub fn computations(&self) -> &[Computation] {
        &self.computations
    }

    fn called(&self, id: u64) -> Option<&Computation> {
        self.computations.iter().find(|computation| computation.id == id)
    }

    /// Turns of a loop: what the compiler wrote down, else the constant its counter is compared with, which is the count for
    /// loops that count from 0 by 1 as `stablehlo` writes them. None for loops that run as long as data says.
    fn turns(&self, instruction: &Instruction) -> Option<u64> {
        if instruction.opcode != "while" {
            return None;
        }
        let bound = |id: &u64| {
            let condition = self.called(*id)?;
            let compare = condition.instructions.last().filter(|last| last.opcode == "compare")?;
            let constants = condition.instructions.iter().filter(|each| compare.operands.contains(&each.id));
            constants.filter_map(|each| each.constant).next()
        };
        instruction.turns.or_else(|| instruction.calls.iter().find_map(bound))
    }
}

impl Instruction {
    /// Bytes of its largest result, dense.
    pub fn largest_result(&self) -> u64 {
        self.results.iter().map(|shape| shape.size_bytes() as u64).max().unwrap_or(0)
    }
}

/// Such as `{1,2,0}S(1)`: axes, the fastest running first, and the memory unless it is the main one.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes: Vec<_> = self.order.iter().map(ToString::to_string).collect();
        write!(f, "{{{}}}", axes.join(","))?;
        if self.space == 0 { Ok(()) } else { write!(f, "S({})", self.space) }
    }
}

/// One line an instruction, for reading: name, opcode, results and their layouts, operands, source.
impl fmt::Display for HloModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for computation in &self.computations {
            let entry = if computation.id == self.entry().id { "ENTRY " } else { "" };
            writeln!(f, "{entry}{} {{", computation.name)?;
            for instruction in &computation.instructions {
                let results = instruction.results.iter().zip(&instruction.layouts);
                let results: Vec<_> = results.map(|(shape, layout)| format!("{shape}{layout}")).collect();
                let (name, opcode) = (&instruction.name, &instruction.opcode);
                write!(f, "  {name} = ({}) {opcode}(", results.join(", "))?;
                let named = |id: &u64| computation.instructions.iter().find(|each| each.id == *id);
                let operands = instruction.operands.iter().filter_map(named).map(|each| each.name.as_str());
                write!(f, "{})", operands.collect::<Vec<_>>().join(", "))?;
                for call in &instruction.calls {
                    write!(f, " calls {}", self.called(*call).map_or("?", |called| called.name.as_str()))?;
                }
                if let Some(turns) = self.turns(instruction) {
                    write!(f, " turns {turns}")?;
                }
                writeln!(f, " from {:?}", instruction.source)?;
            }
            writeln!(f, "}}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
