//! Gated networks.

use model::Activation;
use stablehlo::{DType, Func, Value};

use super::Layer;
use super::linear::linear;
use super::norm::silu;

/// `[rows, hidden]` through the gated network whose weights have the given roles.
pub(crate) fn gated(layer: &Layer<'_>, x: Value, enter: &str, inner: usize, leave: &str) -> Value {
    let f = layer.f;
    let [gate, up] = layer.rows(x, enter, [("gate", inner), ("up", inner)]);
    let active = activate(f, layer.config.activation, gate, up);
    linear(f, active, layer.matrix(leave))
}

/// The activation of a value whose last axis holds the gate half, then the up half.
pub(crate) fn activate_halves(f: &Func, activation: Activation, x: Value) -> Value {
    let axis = f.dims(x).len() - 1;
    let both = f.dim(x, axis);
    let gate = f.slice_axis(x, axis, 0, both / 2);
    let up = f.slice_axis(x, axis, both / 2, both);
    activate(f, activation, gate, up)
}

/// What stands between the two products of a gated network; evaluated in f32.
fn activate(f: &Func, activation: Activation, gate: Value, up: Value) -> Value {
    let dtype = f.dtype(gate);
    let (gate, up) = (f.convert(gate, DType::F32), f.convert(up, DType::F32));
    let limit = |x: Value, at: f64| f.splat_like(x, at);
    let active = match activation {
        Activation::Swiglu => f.mul(silu(f, gate), up),
        Activation::ClampedSwiglu { limit: most } => {
            let gate = f.min(gate, limit(gate, most));
            let up = f.min(f.max(up, limit(up, -most)), limit(up, most));
            f.mul(silu(f, gate), up)
        }
        Activation::Situ { beta, linear } => {
            let capped = |x: Value, at: f64| f.mul_scalar(f.tanh(f.mul_scalar(x, 1.0 / at)), at);
            let up = linear.map_or(up, |at| capped(up, at));
            f.mul(f.mul(capped(gate, beta), f.logistic(gate)), up)
        }
    };
    f.convert(active, dtype)
}
