//! A function's arguments and results, as the executor must know them.

use std::panic::Location;

use crate::func::Value;
use crate::sharding::Sharding;
use crate::types::Type;

/// What happens to an argument's buffer when the program runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Donation {
    /// The caller keeps it.
    #[default]
    Keep,
    /// It becomes the result of this name, which must have the same type; the caller's handle is dead afterwards.
    To(String),
    /// The compiler may reuse it for any result or temporary; the caller's handle is dead afterwards.
    Any,
}

/// What an argument carries beside its type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArgAttrs {
    pub sharding: Option<Sharding>,
    pub donation: Donation,
}

impl ArgAttrs {
    pub fn new() -> Self {
        ArgAttrs::default()
    }

    /// Give the buffer to the result named `output`.
    pub fn donate_to(mut self, output: &str) -> Self {
        self.donation = Donation::To(output.to_owned());
        self
    }

    /// Give the buffer to the compiler.
    pub fn donate(mut self) -> Self {
        self.donation = Donation::Any;
        self
    }

    pub fn sharding(mut self, sharding: Sharding) -> Self {
        self.sharding = Some(sharding);
        self
    }
}

/// An argument of a finished program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arg {
    pub name: String,
    pub ty: Type,
    pub sharding: Option<Sharding>,
    pub donation: Donation,
    pub(crate) location: &'static Location<'static>,
}

/// A result of a function: a name, the type, and how it is spread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub name: String,
    pub ty: Type,
    pub sharding: Option<Sharding>,
    pub(crate) value: Value,
}
