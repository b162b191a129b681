//! Client of Tandem's inference service: streaming, typed errors, safe retries, exact resumption.
//!
//! Requests and responses are the contract's own messages, in [`v1`].

mod address;
mod channel;
mod client;
mod completion;
mod error;
mod generation;
mod retry;
mod splice;

pub use channel::{MESSAGE_LIMIT, Tls};
pub use client::{Builder, Client, Credential};
pub use completion::Completion;
pub use error::{Error, Reason};
pub use generation::Generation;
pub use retry::Retry;

/// Messages generated from the contracts.
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
