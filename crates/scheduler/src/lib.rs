//! What the next device step should contain.
//!
//! The engine's step loop asks before each step: [`Prefill`] admits prompts and picks the next chunk, [`Decode`]
//! picks the rows of the next fused step. Both take the time as an argument and touch no device; what holds room
//! comes from the caller, who has it from `statepool`.

mod decode;
mod prefill;

pub use decode::Decode;
pub use prefill::{Ask, ChunkStep, Grid, Prefill, Priority, Start};

/// Names a sequence inside one engine; never used again while the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(pub u64);
