//! From a model, a phase, a shape bucket and a mesh to the program that runs it.
//!
//! `engine` calls in once for every shape it will run and binds the arguments by what they mean ([`ArgKind`]), never by
//! position. This room calls `model` for the arrangement of layers and `stablehlo` for the text; it does no I/O.

mod arrangement;
mod arrays;
mod assembly;
mod decode;
mod draft;
mod error;
mod ladder;
mod layers;
mod mesh;
#[cfg(test)]
mod on_cpu;
mod prefill;
mod program;
pub mod sampling;
mod speculate;
mod state_array;
pub mod transfer;

pub use assembly::Assembly;
pub use decode::decode;
pub use error::Error;
pub use ladder::{MAX_DRAFTS, ShapeLadder};
pub use mesh::Mesh;
pub use model::weights::{self, WeightSpec};
pub use prefill::{draft_line, prefill};
pub use program::{Arg, ArgKind, Input, Options, Output, Program, Res, ResKind};
pub use stablehlo::{DType, Type};
pub use state_array::StateArray;
