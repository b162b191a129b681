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
    /// u8 `[..., out, in / 2]`, the even column in the low half, and u8 `[..., out, in / 32]`, biased powers of two.
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
            Self::Mxfp4 { packed, scales } => unpack(f, packed, scales, dtype),
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
        w => dot(f, x, w.float(f, dtype), &Dot::contract([last], [1])),
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

/// e2m1 halves times powers of two. A byte's low half is the even column.
///
/// The magnitude of a half `e e m` is `m / 2` for `e = 0`, else `2^(e - 1) (1 + m / 2)`; both are put together as f32 bits,
/// with the subnormal one corrected by a choice, so that a device without the type needs shifts alone.
fn unpack(f: &Func, packed: Value, scales: Value, dtype: DType) -> Value {
    let mut pairs = f.dims(packed);
    let axis = pairs.len();
    pairs.push(1);
    let wide = f.reshape(f.convert(packed, DType::U32), &pairs);
    let four = f.splat_like(wide, 4.0);
    let low = f.and(wide, f.splat(15u32, &pairs));
    let halves = f.concatenate(&[low, f.shift_right_logical(wide, four)], axis);
    let dims = f.dims(halves);
    let bits = |mask: u32, by: u32| f.shift_left(f.and(halves, f.splat(mask, &dims)), f.splat(by, &dims));
    // Exponent and mantissa land on f32's; its bias is 127, e2m1's is 1.
    let magnitude = f.add(bits(7, 22), f.splat(126u32 << 23, &dims));
    let normal = f.bitcast_convert(magnitude, DType::F32);
    let small = f.mul_scalar(f.convert(f.and(halves, f.splat(1u32, &dims)), DType::F32), 0.5);
    let is_small = f.lt(f.and(halves, f.splat(7u32, &dims)), f.splat(2u32, &dims));
    let value = f.select(is_small, small, normal);
    let signed = f.select(f.ne(bits(8, 0), f.splat(0u32, &dims)), f.neg(value), value);

    let mut grouped = f.dims(scales);
    let lead: Vec<usize> = (0..grouped.len()).collect();
    grouped.push(MXFP4_GROUP as i64);
    let power = f.shift_left(f.convert(scales, DType::U32), f.splat(23u32, &f.dims(scales)));
    let power = f.bitcast_convert(power, DType::F32);
    let signed = f.reshape(signed, &grouped);
    let value = f.mul(signed, f.broadcast_like(power, signed, &lead));
    let mut dims = f.dims(packed);
    if let Some(last) = dims.last_mut() {
        *last *= 2;
    }
    f.convert(f.reshape(value, &dims), dtype)
}

#[cfg(test)]
mod tests;
