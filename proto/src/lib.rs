//! The `tandem.v1` contracts, and the one place where raw messages become checked values.
//!
//! Every process speaks through this room. [`v1`] is generated from `proto/tandem/v1`; [`sampling`] carries what a
//! client asks for, [`status`] is how every error of every service becomes a gRPC status, and is read back, and
//! [`namespace`] says whose prompts share cached state.

#[doc(hidden)]
pub mod fuzz;
pub mod namespace;
pub mod sampling;
pub mod status;

/// Messages, clients and servers generated from `proto/tandem/v1`.
#[allow(
    clippy::all,
    clippy::too_many_lines,
    clippy::or_fun_call,
    missing_debug_implementations,
    unreachable_pub
)]
pub mod v1 {
    tonic::include_proto!("tandem.v1");
}

/// KEDA's contract for external scalers, generated from `proto/externalscaler`.
#[allow(
    clippy::all,
    clippy::too_many_lines,
    clippy::or_fun_call,
    missing_debug_implementations,
    unreachable_pub
)]
pub mod externalscaler {
    tonic::include_proto!("externalscaler");
}

/// The encoded `FileDescriptorSet` of all contracts, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tandem.bin"));

/// Largest message accepted or sent, in bytes: a prompt of a million tokens fits.
pub const MESSAGE_LIMIT: usize = 64 << 20;

#[cfg(test)]
mod tests;
