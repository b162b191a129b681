//! Kimi delta attention: a recurrent matrix per head, `S <- diag(exp g) S; u = beta (v - S^T k); S <- S + k u^T;
//! o = S^T q`, with queries and keys of unit length.
//!
//! The decay of Kimi-Linear has no lower bound, so no formula here takes the exponential of a positive number.

mod decay;
mod inverse;
mod overlap;
mod step;
mod tiles;
mod window;

pub(crate) use step::step;
pub(crate) use tiles::chunked;
pub(crate) use window::{Window, recover, window};

use stablehlo::{DType, Dot, Value};

use super::Layer;
use super::linear::{dot, linear};
use super::norm::{l2_norm, softplus, unit_rms};

/// What the first product of a layer gives for each row.
pub(crate) struct Projected {
    /// f32 `[rows, 3 * width]`: query, key and value before the convolution.
    pub(crate) qkv: Value,
    /// f32 `[rows, heads, dim]`: log decay, at most 0.
    pub(crate) decay: Value,
    /// f32 `[rows, heads]`: how much of the error is written, in (0, 1).
    pub(crate) beta: Value,
    /// `[rows, width]`: output gate before its sigmoid.
    gate: Value,
}

/// Query, key and value inputs, decay, beta and gate of normed rows `[rows, hidden]`.
pub(crate) fn project(layer: &Layer<'_>, x: Value) -> Projected {
    let (f, shape) = (layer.f, &layer.config.kda);
    let (rows, heads, dim, width) = (f.dim(x, 0), shape.heads, shape.dim, shape.width());
    let gate_width = if shape.full_gate { width } else { dim };
    let parts = [
        ("query", width),
        ("key", width),
        ("value", width),
        ("decay", dim),
        ("gate", gate_width),
        ("beta", heads),
    ];
    let [q, k, v, decay, gate, beta] = layer.rows(x, "kda.project", parts);
    let wide = |x: Value| f.reshape(x, &[rows, 1, dim as i64]);
    let expand = |inputs: Value| {
        let how = Dot::contract([2], [2]).batch([1], [0]);
        dot(f, inputs, layer.matrix("kda.expand").float(f, f.dtype(x)), &how)
    };
    let half = |all: Value, at: i64| f.reshape(f.slice_axis(all, 0, at, at + 1), &[rows, width as i64]);
    let (raw, gate) = if shape.full_gate {
        (half(expand(wide(decay)), 0), gate)
    } else {
        let both = expand(f.concatenate(&[wide(decay), wide(gate)], 1));
        (half(both, 0), half(both, 1))
    };
    let float = |x: Value| f.convert(x, DType::F32);
    Projected {
        qkv: float(f.concatenate(&[q, k, v], 1)),
        decay: log_decay(layer, f.reshape(float(raw), &[rows, heads as i64, dim as i64])),
        beta: f.logistic(float(beta)),
        gate,
    }
}

/// Log decay of `z [rows, heads, dim]`: `bound sigmoid(e^a (z + b))`, or `-e^a softplus(z + b)` without a bound.
fn log_decay(layer: &Layer<'_>, z: Value) -> Value {
    let (f, shape) = (layer.f, &layer.config.kda);
    let bias = f.reshape(layer.weight("kda.dt_bias"), &[shape.heads as i64, shape.dim as i64]);
    let shifted = f.add(z, f.broadcast_like(bias, z, &[1, 2]));
    let rate = f.exp(layer.weight("kda.a_log"));
    let by_rate = |x: Value| f.mul(x, f.broadcast_like(rate, x, &[1]));
    match shape.decay_bound {
        Some(bound) => f.mul_scalar(f.logistic(by_rate(shifted)), bound),
        None => f.neg(by_rate(softplus(f, shifted))),
    }
}

/// Unit-length query (scaled by `dim^-1/2`), unit-length key, and value, each `[rows, heads, dim]`, from convolved rows
/// `[rows, width]` each.
///
/// All three are read many times. Without the barriers a compiler folds the convolution into every reader and does it
/// anew there.
pub(crate) fn heads(layer: &Layer<'_>, convolved: [Value; 3]) -> [Value; 3] {
    let (f, shape) = (layer.f, &layer.config.kda);
    let rows = f.dim(convolved[0], 0);
    let convolved = f.optimization_barrier(&convolved);
    let head = |at: usize| f.reshape(convolved[at], &[rows, shape.heads as i64, shape.dim as i64]);
    let q = f.mul_scalar(l2_norm(f, head(0)), (shape.dim as f64).powf(-0.5));
    let done = f.optimization_barrier(&[q, l2_norm(f, head(1)), head(2)]);
    std::array::from_fn(|at| done[at])
}

/// Attention output f32 `[rows, heads, dim]`, normed per head and gated, to `[rows, hidden]`.
pub(crate) fn output(layer: &Layer<'_>, projected: &Projected, o: Value) -> Value {
    let f = layer.f;
    let (rows, width) = (f.dim(o, 0), layer.config.kda.width() as i64);
    let normed = unit_rms(f, o, layer.config.rms_eps);
    let weighed = f.mul(normed, f.broadcast_like(layer.weight("kda.norm"), normed, &[2]));
    let gate = f.logistic(f.convert(projected.gate, DType::F32));
    let gated = f.mul(f.reshape(weighed, &[rows, width]), gate);
    layer.sum(linear(f, f.convert(gated, f.dtype(projected.gate)), layer.matrix("kda.out")))
}

#[cfg(test)]
mod tests;
