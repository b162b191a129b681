use stablehlo::{DType, Dot, Func, Value};

use super::Half;
use crate::layers::Layer;
use crate::layers::norm::unit_rms;

/// Manifold-constrained hyper-connections of one half of a layer: how the streams are collapsed into what the half
/// reads, how its output is spread, and how the streams mix (DeepSeek's mHC; `Glm5NextTextHyperConnection`).
pub(super) struct Mix {
    /// f32 `[rows, streams]`: `sigmoid(. scale + base) + eps`.
    collapse: Value,
    /// f32 `[rows, streams]`: `2 sigmoid(. scale + base)`.
    spread: Value,
    /// f32 `[from, to, rows]`: doubly stochastic, by Sinkhorn iterations.
    exchange: Value,
}

/// Embeddings `[rows, hidden]` in every stream: `[rows, streams, hidden]`.
pub(super) fn start(f: &Func, x: Value, count: usize) -> Value {
    let dims = [f.dim(x, 0), count as i64, f.dim(x, 1)];
    f.broadcast_in_dim(x, &dims, &[0, 2])
}

/// The streams' mean, `[rows, hidden]`.
pub(super) fn end(f: &Func, x: Value) -> Value {
    let sum = f.sum(f.convert(x, DType::F32), &[1]);
    f.convert(f.mul_scalar(sum, 1.0 / f.dim(x, 1) as f64), f.dtype(x))
}

impl Mix {
    pub(super) fn new(layer: &Layer<'_>, half: Half, x: Value, iterations: usize, eps: f64) -> Self {
        let f = layer.f;
        let (rows, count, hidden) = (f.dim(x, 0), f.dim(x, 1), f.dim(x, 2));
        let flat = f.convert(f.reshape(x, &[rows, count * hidden]), DType::F32);
        let normed = unit_rms(f, flat, layer.config.rms_eps);
        let project = f.convert(layer.weight(&half.role("project")), DType::F32);
        // Rows last: everything after this works on few values a row.
        let all = f.dot_general(project, normed, &Dot::contract([1], [1]));
        let base = layer.weight(&half.role("base"));
        let scale = layer.weight(&half.role("scale"));
        let group = |at: i64, start: i64, end: i64| {
            let own = f.slice_axis(all, 0, start, end);
            let factor = f.reshape(f.slice_axis(scale, 0, at, at + 1), &[]);
            let shift = f.slice_axis(base, 0, start, end);
            f.add(f.mul(own, f.broadcast_like(factor, own, &[])), f.broadcast_like(shift, own, &[0]))
        };
        let by_row = |x| f.transpose(x, &[1, 0]);
        let collapse = f.add_scalar(f.logistic(group(0, 0, count)), eps);
        let spread = f.mul_scalar(f.logistic(group(1, count, 2 * count)), 2.0);
        let raw = group(2, 2 * count, (2 + count) * count);
        let exchange = sinkhorn(f, f.reshape(raw, &[count, count, rows]), iterations, eps);
        Self { collapse: by_row(collapse), spread: by_row(spread), exchange }
    }

    /// `sum_j collapse_j x_j`.
    pub(super) fn enter(&self, f: &Func, x: Value) -> Value {
        let wide = f.convert(x, DType::F32);
        let sum = f.sum(f.mul(wide, f.broadcast_like(self.collapse, wide, &[0, 1])), &[1]);
        f.convert(sum, f.dtype(x))
    }

    /// `x'_j = spread_j y + sum_i exchange_ij x_i`.
    pub(super) fn leave(&self, f: &Func, x: Value, y: Value) -> Value {
        let dims = f.dims(x);
        let wide = f.convert(x, DType::F32);
        let cells = [dims[0], dims[1], dims[1], dims[2]];
        let from = f.broadcast_in_dim(wide, &cells, &[0, 1, 3]);
        let weight = f.broadcast_in_dim(self.exchange, &cells, &[1, 2, 0]);
        let mixed = f.sum(f.mul(from, weight), &[1]);
        let output = f.broadcast_in_dim(f.convert(y, DType::F32), &dims, &[0, 2]);
        let spread = f.mul(output, f.broadcast_like(self.spread, output, &[0, 1]));
        f.convert(f.add(spread, mixed), f.dtype(x))
    }
}

/// Softmax over `to`, then columns and rows divided by their sums in turn, `iterations` times in all, ending on columns.
/// `x` is `[from, to, rows]`.
fn sinkhorn(f: &Func, x: Value, iterations: usize, eps: f64) -> Value {
    let peak = f.reduce_max(x, &[1]);
    let each = f.exp(f.sub(x, f.broadcast_like(peak, x, &[0, 2])));
    let total = f.sum(each, &[1]);
    let start = f.add_scalar(f.div(each, f.broadcast_like(total, each, &[0, 2])), eps);
    let columns = |f: &Func, x: Value| {
        let sums = f.add_scalar(f.sum(x, &[0]), eps);
        f.div(x, f.broadcast_like(sums, x, &[1, 2]))
    };
    let first = columns(f, start);
    let rest = iterations.saturating_sub(1) as i32;
    f.repeat(rest, &[first], |f, _, carried| {
        let x = carried[0];
        let sums = f.add_scalar(f.sum(x, &[1]), eps);
        vec![columns(f, f.div(x, f.broadcast_like(sums, x, &[0, 2])))]
    })[0]
}
