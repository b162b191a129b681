//! The operations, as methods of the builder.

pub(crate) mod call;
pub(crate) mod collective;
mod constant;
pub(crate) mod control;
pub(crate) mod dot;
pub(crate) mod elementwise;
pub(crate) mod index;
mod order;
mod per_device;
pub(crate) mod random;
pub(crate) mod reduce;
mod shape;
mod slice;
pub(crate) mod window;
