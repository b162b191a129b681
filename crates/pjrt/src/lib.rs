//! The only room with `unsafe`: client, devices, buffers, programs, events, over any PJRT plugin (CPU, TPU, CUDA).
//!
//! `checkpoint` and `engine` call in; it calls `pjrt-sys`. A [`Plugin`] is a shared object, a [`Client`] is its devices, a
//! [`Buffer`] is an array on one of them and an [`Executable`] is a program compiled for them. All four are `Send + Sync`;
//! everything that takes time hands out an [`Event`] or a [`Transfer`], which are futures and can also be waited for.
//!
//! Without any device, a [`Topology`] names a machine that need not be there and compiles for it; the [`Compiled`] program
//! then tells its memory plan and its optimised module, but cannot run.
//!
//! What hurts:
//! - executions on one device are first-in first-out: a small program behind a long one waits for it. Work that must not
//!   wait needs its own device or its own process;
//! - an internal check of the plugin that fails aborts the process. This room rejects what is known to lead there (wrong
//!   argument counts and shapes, ranges outside a buffer), the rest is why workers are separate processes;
//! - a program that donates an argument donates it at every call, whoever calls: the buffer is deleted afterwards;
//! - compiling for a topology aborts on what the compiler did not expect (a sharded program without a device assignment, for
//!   one), and libtpu reads its environment while it is loaded: compile in a child process made for it;
//! - on the host an element below one byte takes one byte: upload packed weights as `u8` and bitcast in the program;
//! - a plugin reads its environment when it is loaded or when a client is made. This room never writes the environment,
//!   which cannot be done soundly once threads run: whoever starts the process sets [`QUIET_LOG`] and `PJRT_NPROC`.

mod buffer;
pub mod cache;
mod client;
mod compiled;
mod device;
mod download;
mod dtype;
mod error;
mod event;
mod executable;
mod execute;
pub mod hlo;
mod host;
mod locate;
mod options;
mod plugin;
mod signature;
mod topology;
mod transfer;
mod upload;
mod wire;

pub use buffer::Buffer;
pub use client::{Client, OptionValue};
pub use compiled::{Compiled, CompiledMemory, Cost};
pub use device::{Device, MemoryStats};
pub use dtype::{DType, Element, Shape};
pub use error::{Code, DeviceMemory, Error, Fault, Result};
pub use event::{Event, Transfer};
pub use executable::Executable;
pub use execute::{ExecuteOptions, Execution};
pub use host::AlignedBytes;
pub use locate::{libtpu_path, plugin_path};
pub use options::CompileOptions;
pub use plugin::{Plugin, leave};
pub use signature::Signature;
pub use topology::{Topology, TpuChip, TpuSlice};
pub use transfer::TransferManager;

/// The environment variable and value with which a plugin built from XLA logs only errors to stderr. Set it on the process
/// before it starts, as `scripts/` and the launchers do.
pub const QUIET_LOG: (&str, &str) = ("TF_CPP_MIN_LOG_LEVEL", "2");
