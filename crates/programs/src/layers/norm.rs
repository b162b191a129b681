//! Norms and activations over the last axis.

use stablehlo::{DType, Func, Value};

/// `x / sqrt(mean(x^2) + eps)` over the last axis in f32, cast to `x`'s type, times `weight`.
pub(crate) fn rms_norm(f: &Func, x: Value, weight: Value, eps: f64) -> Value {
    let (dtype, last) = (f.dtype(x), f.dims(x).len() - 1);
    let unit = f.convert(unit_rms(f, f.convert(x, DType::F32), eps), dtype);
    f.mul(unit, f.broadcast_like(f.convert(weight, dtype), x, &[last]))
}

/// `x / sqrt(mean(x^2) + eps)` over the last axis, in f32.
pub(crate) fn unit_rms(f: &Func, x: Value, eps: f64) -> Value {
    let width = f.dims(x).last().copied().unwrap_or(1) as f64;
    scale_by(f, x, |squares| f.add_scalar(f.mul_scalar(squares, 1.0 / width), eps))
}

/// `x / sqrt(sum(x^2) + 1e-6)` over the last axis: the epsilon stands under the root.
pub(crate) fn l2_norm(f: &Func, x: Value) -> Value {
    scale_by(f, x, |squares| f.add_scalar(squares, 1e-6))
}

fn scale_by(f: &Func, x: Value, under_root: impl FnOnce(Value) -> Value) -> Value {
    let rank = f.dims(x).len();
    let squares = f.sum(f.mul(x, x), &[rank - 1]);
    let scale = f.rsqrt(under_root(squares));
    let leading: Vec<usize> = (0..rank - 1).collect();
    f.mul(x, f.broadcast_like(scale, x, &leading))
}

/// `x * sigmoid(x)`.
pub(crate) fn silu(f: &Func, x: Value) -> Value {
    f.mul(x, f.logistic(x))
}

/// `log(1 + exp(x))` without overflow.
pub(crate) fn softplus(f: &Func, x: Value) -> Value {
    let tail = f.log1p(f.exp(f.neg(f.abs(x))));
    f.add(f.max(x, f.splat_like(x, 0.0)), tail)
}
