//! What both worker roles do: describe, watch, join the membership, drain.
//!
//! A role's binary builds its engine and its own service, and hands them to a [`Shell`], which serves them beside
//! health, reflection, metrics and `tandem.v1.Worker`, keeps the worker a member, and takes it down.

mod cache;
mod flags;
mod incarnation;
mod numerics;
mod service;
mod shell;

pub use cache::{CacheChange, CacheLog};
pub use flags::Flags;
pub use incarnation::Incarnation;
pub use numerics::{Float, Numerics};
pub use service::WorkerService;
pub use shell::{Error, Serving, Shell};
