//! Stored bytes to f32, a format each.

pub(crate) mod float;
pub(crate) mod fp8;
pub(crate) mod mxfp4;

#[cfg(test)]
mod tests;
