//! Gated networks.

use stablehlo::{Func, Value};

use super::Layer;
use super::norm::silu;

/// `[rows, hidden]` through the gated network whose weights have the given roles: `out(silu(gate) * up)`.
pub(crate) fn gated(layer: &Layer<'_>, x: Value, enter: &str, leave: &str) -> Value {
    let f = layer.f;
    let hidden = f.linear(x, layer.weight(enter));
    f.linear(swiglu(f, hidden), layer.weight(leave))
}

/// `silu(gate) * up` where the last axis holds the gate half, then the up half.
pub(crate) fn swiglu(f: &Func, x: Value) -> Value {
    let axis = f.dims(x).len() - 1;
    let both = f.dim(x, axis);
    let gate = f.slice_axis(x, axis, 0, both / 2);
    let up = f.slice_axis(x, axis, both / 2, both);
    f.mul(silu(f, gate), up)
}
