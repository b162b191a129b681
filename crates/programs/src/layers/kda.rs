//! Kimi delta attention: a recurrent matrix per head, `S <- diag(exp g) S; u = beta (v - S^T k); S <- S + k u^T;
//! o = S^T q`, with queries and keys of unit length.
//!
//! The decay `g = -exp(a_log) softplus(z + dt_bias)` has no lower bound in this family, so no formula here takes the
//! exponential of a positive number.

mod decay;
mod inverse;
mod overlap;
mod step;
mod tiles;

pub(crate) use step::step;
pub(crate) use tiles::chunked;

use stablehlo::{Dot, Value};

use super::Layer;
use super::norm::{l2_norm, softplus, unit_rms};

/// What the first product of a layer gives for each row.
pub(crate) struct Projected {
    /// `[rows, 3 * width]`: query, key and value before the convolution.
    pub(crate) qkv: Value,
    /// `[rows, heads, dim]`: log decay, at most 0.
    pub(crate) decay: Value,
    /// `[rows, heads]`: how much of the error is written, in (0, 1).
    pub(crate) beta: Value,
    /// `[rows, width]`: output gate before its sigmoid.
    gate: Value,
}

/// Query, key and value inputs, decay, beta and gate of normed rows `[rows, hidden]`.
pub(crate) fn project(layer: &Layer<'_>, x: Value) -> Projected {
    let (f, shape) = (layer.f, &layer.config.kda);
    let (rows, heads, dim, width) = (f.dim(x, 0), shape.heads as i64, shape.dim as i64, shape.width() as i64);
    let all = f.linear(x, layer.weight("kda.project"));
    let parts = f.split(all, 1, &[3 * width, 2 * dim, heads]);
    let inputs = f.reshape(parts[1], &[rows, 2, dim]);
    let expand = Dot::contract([2], [2]).batch([1], [0]);
    let expanded = f.dot_general(inputs, layer.weight("kda.expand"), &expand);
    let half = |at: i64| f.reshape(f.slice_axis(expanded, 0, at, at + 1), &[rows, width]);
    let raw = half(0);
    let shifted = f.add(raw, f.broadcast_like(layer.weight("kda.dt_bias"), raw, &[1]));
    let soft = f.reshape(softplus(f, shifted), &[rows, heads, dim]);
    let rate = f.neg(f.exp(layer.weight("kda.a_log")));
    Projected {
        qkv: parts[0],
        decay: f.mul(soft, f.broadcast_like(rate, soft, &[1])),
        beta: f.logistic(parts[2]),
        gate: half(1),
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

/// Attention output `[rows, heads, dim]`, normed per head and gated, to `[rows, hidden]`.
pub(crate) fn output(layer: &Layer<'_>, projected: &Projected, o: Value) -> Value {
    let f = layer.f;
    let (rows, width) = (f.dim(o, 0), layer.config.kda.width() as i64);
    let normed = unit_rms(f, o, layer.config.rms_eps);
    let weighed = f.mul(normed, f.broadcast_like(layer.weight("kda.norm"), normed, &[2]));
    let gated = f.mul(f.reshape(weighed, &[rows, width]), f.logistic(projected.gate));
    f.linear(gated, layer.weight("kda.out"))
}

#[cfg(test)]
mod tests;
