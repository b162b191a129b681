//! The doors: both bring what a client wrote to the same check, and the same answer back.

mod grpc;
mod openai;

pub use grpc::Grpc;
pub(crate) use grpc::asked;
pub use openai::routes as openai;
pub(crate) use openai::takes;
