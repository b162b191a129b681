//! One way to trace, count, and carry trace context across gRPC.
//!
//! Every program calls [`init`] once and hands a [`Meters`] to the parts it builds; [`propagate`] keeps one trace a
//! request over every hop. Nothing here is global but what `tracing` itself makes global.

mod init;
mod meters;
pub mod propagate;

pub use init::{Error, LogFormat, Options, Tracing, init};
pub use meters::{Meters, Seconds, seconds_histogram};
