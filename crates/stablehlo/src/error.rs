//! What a wrong call says.

use std::fmt;
use std::panic::Location;

/// What a wrong call got wrong. Always the fault of the code that builds the program; trying again cannot help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Operand shapes do not fit each other, or the shape asked for.
    Shape,
    /// An element type that the operation does not take.
    Dtype,
    /// An axis that is out of range or named twice.
    Axis,
    /// An attribute (a window, a permutation, a sharding, a replica group) that makes no sense.
    Attribute,
    /// A value used where it is not visible.
    Visibility,
    /// A region or a function that yields something else than it must.
    Yield,
    /// Names, arguments, results and donations of functions.
    Signature,
}

/// The first wrong call in a module: which operation, where in the caller's source, in which scope, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{op} at {location}{}: {message}{}", In(.scope), Of(.operands))]
pub struct Error {
    pub class: Class,
    /// The operation's mnemonic, such as `stablehlo.add`, or the builder's method for what is none.
    pub op: &'static str,
    /// The call, in the source of whoever builds the program.
    pub location: &'static Location<'static>,
    /// The path of open scopes, such as `layer.kda/gate`; empty outside any.
    pub scope: String,
    pub message: String,
    /// The operands' types, printed.
    pub operands: Vec<String>,
}

struct In<'a>(&'a str);

impl fmt::Display for In<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(out, " in {}", self.0) }
    }
}

struct Of<'a>(&'a [String]);

impl fmt::Display for Of<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(out, " (operands: {})", self.0.join(", ")) }
    }
}

/// Why a call is wrong, before the call's place is known.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) class: Class,
    pub(crate) message: String,
}

/// Leaves with a fault of the class named first unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $class:ident, $($message:tt)+) => {
        if !$holds {
            return Err($crate::error::Fault {
                class: $crate::error::Class::$class,
                message: format!($($message)+),
            });
        }
    };
}
pub(crate) use ensure;
