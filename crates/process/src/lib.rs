//! From flags to drain: what every program does before and after its work.
//!
//! A program's `main` is: [`config::parse`], [`observe::start`], bind its listeners with [`net::bind`], build itself,
//! serve with [`grpc::serve`] and [`http::serve`], and end when [`Drain`] says so.

pub mod config;
mod drain;
pub mod grpc;
pub mod http;
pub mod net;
pub mod observe;
mod random;
pub mod threads;

pub use drain::{Drain, Work};
pub use random::Random;
