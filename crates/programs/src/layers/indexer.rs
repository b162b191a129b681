//! The sparse attention's indexer: which pools of a sequence's tokens a row attends to.
//!
//! Pool `p` is the tokens `p K .. (p + 1) K` of the sequence. Of each token a raw key `k` and a pooling score `s` are kept
//! until its pool is complete; the pooled key is then, channel by channel, `sum_i softmax_i(s_i + places_i) k_i`. A row
//! scores the complete pools it sees by `sum_h a_h relu(q_h . kp) dim^-1/2` and chooses the best ones. Everything but the
//! products with `q` is in f32: an error here changes which tokens are attended to.

mod choose;
mod pools;

pub(crate) use choose::{Asked, Chosen, choose};
pub(crate) use pools::{places_up_to, pooled, ring_after, touched};

use model::Indexer;
use stablehlo::{DType, Dot, Func, Precision, Value};

use super::Layer;
use super::linear::dot;

/// What a layer's indexer makes of each row.
pub(crate) struct Projected {
    /// What the row asks of the pools.
    pub(crate) asked: Asked,
    /// f32 `[rows, 2, dim]`: the row's own key and pooling score.
    pub(crate) own: Value,
}

/// Epsilon of the norm on keys.
const KEY_EPS: f64 = 1e-6;

/// Queries, head weights, key and pooling score of normed rows `[rows, hidden]`, whose normed compressed queries are
/// `compressed [rows, q_lora]`.
pub(crate) fn project(layer: &Layer<'_>, shape: &Indexer, x: Value, compressed: Value) -> Projected {
    let f = layer.f;
    let (rows, heads, dim) = (f.dim(x, 0), shape.heads as i64, shape.dim as i64);
    let queries = dot(f, compressed, layer.weight("index.query"), &Dot::contract([1], [1]));
    let all = product(f, x, layer.weight("index.project"));
    let weights = f.slice_axis(all, 1, 2 * dim, 2 * dim + heads);
    let scale = (shape.heads as f64).powf(-0.5) * (shape.dim as f64).powf(-0.5);
    let asked =
        Asked { queries: f.reshape(queries, &[rows, heads, dim]), weights: f.mul_scalar(weights, scale) };
    Projected { asked, own: own(layer, shape, f.slice_axis(all, 1, 0, 2 * dim)) }
}

/// The rows' own keys and pooling scores alone, f32 `[rows, 2, dim]`.
pub(crate) fn project_own(layer: &Layer<'_>, shape: &Indexer, x: Value) -> Value {
    let f = layer.f;
    let matrix = f.slice_axis(layer.weight("index.project"), 0, 0, 2 * shape.dim as i64);
    own(layer, shape, product(f, x, matrix))
}

/// `x [rows, in]` times `w [out, in]` in f32.
fn product(f: &Func, x: Value, w: Value) -> Value {
    f.dot_general(x, w, &Dot::contract([1], [1]).precision(Precision::Highest).out(DType::F32))
}

/// Keys under their norm (of mean 0 and variance 1, then weight and bias) beside pooling scores, from `[rows, 2 * dim]`.
fn own(layer: &Layer<'_>, shape: &Indexer, raw: Value) -> Value {
    let f = layer.f;
    let dims = [f.dim(raw, 0), 1, shape.dim as i64];
    let halves = f.split(raw, 1, &[dims[2], dims[2]]);
    let mean = |x: Value| f.mul_scalar(f.sum(x, &[1]), 1.0 / shape.dim as f64);
    let spread = |x: Value| f.broadcast_like(x, halves[0], &[0]);
    let centred = f.sub(halves[0], spread(mean(halves[0])));
    let scale = f.rsqrt(f.add_scalar(mean(f.mul(centred, centred)), KEY_EPS));
    let unit = f.mul(centred, spread(scale));
    let channels = |role: &str| f.broadcast_like(layer.weight(role), unit, &[1]);
    let keys = f.add(f.mul(unit, channels("index.norm")), channels("index.norm_bias"));
    f.concatenate(&[f.reshape(keys, &dims), f.reshape(halves[1], &dims)], 1)
}

#[cfg(test)]
mod tests;
