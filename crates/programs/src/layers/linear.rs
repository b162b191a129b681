//! Products with weights, however these are held.

use model::weights::MXFP4_GROUP;
use stablehlo::{DType, Dot, Func, Value};

/// A weight matrix `[..., out, in]` as programs find it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Matrix {
    /// Floats of the width the program computes in.
    Float(Value),
    /// s8 `[..., out, in]` and f32 `[..., out]`.
    Int8 { values: Value, scales: Value },
    /// u8 `[..., in / 2, out]`, the columns' first half in the low halves, and u8 `[..., in / 32, out]`, biased powers of two.
    Mxfp4 { packed: Value, scales: Value },
}

impl Matrix {
    /// The member of the leading axes that `at` names, taken at once: a part that is indexed again is copied first.
    pub(crate) fn member(self, f: &Func, at: &[Value]) -> Self {
        if at.is_empty() {
            return self;
        }
        let part = |value| {
            let dims = f.dims(value);
            let mut starts = at.to_vec();
            starts.resize(dims.len(), f.scalar(0i32));
            let mut sizes = dims.clone();
            sizes[..at.len()].fill(1);
            f.reshape(f.dynamic_slice(value, &starts, &sizes), &dims[at.len()..])
        };
        match self {
            Self::Float(value) => Self::Float(part(value)),
            Self::Int8 { values, scales } => Self::Int8 { values: part(values), scales: part(scales) },
            Self::Mxfp4 { packed, scales } => Self::Mxfp4 { packed: part(packed), scales: part(scales) },
        }
    }

    /// The values as `dtype`.
    pub(crate) fn float(self, f: &Func, dtype: DType) -> Value {
        match self {
            Self::Float(value) => value,
            Self::Int8 { values, scales } => {
                let values = f.convert(values, DType::F32);
                let lead: Vec<usize> = (0..f.dims(scales).len()).collect();
                f.convert(f.mul(values, f.broadcast_like(scales, values, &lead)), dtype)
            }
            Self::Mxfp4 { packed, scales } => {
                let turned = unpack(f, packed, scales, dtype);
                let mut axes: Vec<usize> = (0..f.dims(turned).len()).collect();
                let last = axes.len() - 1;
                axes.swap(last - 1, last);
                f.transpose(turned, &axes)
            }
        }
    }
}

/// `x [..., in]` times `w [out, in]`: `[..., out]`, in `x`'s type; sums are f32.
///
/// Against s8 weights the rows of `x` are rounded to s8 by their own largest magnitude, and the sums are exact.
pub(crate) fn linear(f: &Func, x: Value, w: Matrix) -> Value {
    let dtype = f.dtype(x);
    let last = f.dims(x).len() - 1;
    match w {
        Matrix::Int8 { values, scales } => {
            let lead: Vec<usize> = (0..last).collect();
            let x = f.convert(x, DType::F32);
            let peak = f.reduce_max(f.abs(x), &[last]);
            let peak =
                f.mul_scalar(f.max(peak, f.splat_like(peak, f64::from(f32::MIN_POSITIVE))), 1.0 / 127.0);
            let rounded = f.round_nearest_even(f.div(x, f.broadcast_like(peak, x, &lead)));
            let rounded = f.convert(rounded, DType::S8);
            let sums = f.dot_general(rounded, values, &Dot::contract([last], [1]).out(DType::S32));
            let sums = f.convert(sums, DType::F32);
            let scaled = f.mul(sums, f.broadcast_like(scales, sums, &[last]));
            f.convert(f.mul(scaled, f.broadcast_like(peak, scaled, &lead)), dtype)
        }
        Matrix::Mxfp4 { packed, scales } => {
            dot(f, x, unpack(f, packed, scales, dtype), &Dot::contract([last], [0]))
        }
        Matrix::Float(w) => dot(f, x, w, &Dot::contract([last], [1])),
    }
}

/// A product with f32 sums, in the type of its left side.
pub(crate) fn dot(f: &Func, x: Value, w: Value, how: &Dot) -> Value {
    let dtype = f.dtype(x);
    if dtype == DType::F32 {
        return f.dot_general(x, w, how);
    }
    f.convert(f.dot_general(x, w, &how.clone().out(DType::F32)), dtype)
}

/// e2m1 halves times powers of two, `[..., in, out]`. A byte's low half is of the first half of `in`.
///
/// The magnitude of a half `e e m` is `m / 2` for `e = 0`, else `2^(e - 1) (1 + m / 2)`; both are put together as f32 bits,
/// with the subnormal one corrected by a choice, so that a device without the type needs shifts alone.
fn unpack(f: &Func, packed: Value, scales: Value, dtype: DType) -> Value {
    let axis = f.dims(packed).len() - 2;
    let wide = f.convert(packed, DType::U32);
    let low = f.and(wide, f.splat(15u32, &f.dims(wide)));
    let halves = f.concatenate(&[low, f.shift_right_logical(wide, f.splat_like(wide, 4.0))], axis);
    let dims = f.dims(halves);
    let bits = |mask: u32, by: u32| f.shift_left(f.and(halves, f.splat(mask, &dims)), f.splat(by, &dims));
    // Exponent and mantissa land on f32's; its bias is 127, e2m1's is 1.
    let magnitude = f.add(bits(7, 22), f.splat(126u32 << 23, &dims));
    let normal = f.bitcast_convert(magnitude, DType::F32);
    let small = f.mul_scalar(f.convert(f.and(halves, f.splat(1u32, &dims)), DType::F32), 0.5);
    let is_small = f.lt(f.and(halves, f.splat(7u32, &dims)), f.splat(2u32, &dims));
    let value = f.select(is_small, small, normal);
    let signed = f.select(f.ne(bits(8, 0), f.splat(0u32, &dims)), f.neg(value), value);

    let power = f.shift_left(f.convert(scales, DType::U32), f.splat(23u32, &f.dims(scales)));
    let power = f.bitcast_convert(power, DType::F32);
    let mut grouped = f.dims(scales);
    grouped.insert(axis + 1, MXFP4_GROUP as i64);
    let not_grouped: Vec<usize> = (0..grouped.len()).filter(|&each| each != axis + 1).collect();
    let power = f.reshape(f.broadcast_in_dim(power, &grouped, &not_grouped), &dims);
    f.convert(f.mul(signed, power), dtype)
}

#[cfg(test)]
mod tests;
