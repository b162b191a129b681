//! Run step plans on one device thread; own weights and state arrays; export and import sequences.
//!
//! Workers and the single-process command call in through an [`EngineHandle`]; this room calls `scheduler` for what the next
//! step contains, `programs` for the programs, `checkpoint` for the weights and `pjrt` to run them. One thread owns every
//! device array, and steps are the only moments at which sequences begin, end or move, so that nothing here is locked
//! while a step runs.
//!
//! What hurts: pages and slots are leased before anything is computed and come back when their [`Reservation`] or stream
//! is dropped, at the latest at the next step boundary. A stream whose reader is too slow never holds up the others: a
//! prompt waits for its reader, and an answer whose queue is full ends with [`Error::SlowReader`].
//!
//! What a prompt leaves behind is kept ([`PrefixCache`]): pages stay where they are, the recurrent state goes to the host at
//! chosen positions, each read back from the device before anyone may find it. A prompt that begins alike goes on from there.

mod clock;
mod command;
mod config;
mod coverage;
mod decode;
mod device;
mod error;
pub mod fake;
mod generate;
mod handle;
mod kept;
mod load;
mod metrics;
mod outlet;
mod plugin;
mod prefill;
mod reservation;
mod start;
mod steps;

pub use config::{EngineConfig, Limits, PrefixCache, Role, default_ladder, drafts_of};
pub use decode::{DecodeEvent, DecodeJob, DecodeStream, DraftCounts, EndReason};
pub use device::{Chunk, ChunkDone, Device, DeviceFault, Draws, Facts, Rows, SlotRows, SlotState};
pub use error::{Error, Fault, Retry};
pub use generate::{GenerateEvent, GenerateJob, GenerateStream};
pub use handle::EngineHandle;
pub use kept::{CheckpointFormat, Kept};
pub use load::Load;
pub use metrics::Metrics;
pub use prefill::{PrefillEvent, PrefillJob, PrefillStream, PrefillTimings, SampledToken, output_counts};
pub use prefix::{HashUnit, Namespace};
pub use reservation::{NotStarted, Reservation};
pub use start::Stepper;
pub use start::{Engine, Progress};
pub use statepool::{Event as CacheEvent, Marks};
pub use steps::Turn;

/// Pages and a slot of one sequence.
pub type Lease = statepool::Lease<Kept>;

/// The owner of pages, slots and checkpoints.
type Pool = statepool::Pool<Kept>;
