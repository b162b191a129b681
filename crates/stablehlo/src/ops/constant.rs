//! Constants and counters.

use crate::emit::Built;
use crate::error::{Fault, ensure};
use crate::func::{Func, Value, check_type};
use crate::literal::{self, Element};
use crate::op::Op;
use crate::types::{DType, Type};

impl Func {
    /// A constant of `dims` holding `data` in row-major order.
    #[track_caller]
    pub fn constant<T: Element>(&self, data: &[T], dims: &[i64]) -> Value {
        let ty = T::DTYPE.tensor(dims);
        self.literal(ty.clone(), || {
            ensure!(data.len() as i64 == ty.elements(), Shape, "{} elements given for {ty}", data.len());
            Ok(literal::dense(data, dims))
        })
    }

    /// A constant scalar.
    #[track_caller]
    pub fn scalar<T: Element>(&self, value: T) -> Value {
        self.splat(value, &[])
    }

    /// A constant of `dims` with `value` everywhere.
    #[track_caller]
    pub fn splat<T: Element>(&self, value: T, dims: &[i64]) -> Value {
        self.literal(T::DTYPE.tensor(dims), || Ok(value.literal()))
    }

    /// A constant of `ty` with `value` everywhere. Floats round to nearest even; integers must hold it exactly.
    #[track_caller]
    pub fn full(&self, ty: Type, value: f64) -> Value {
        let dtype = ty.dtype;
        self.literal(ty, || literal::from_f64(dtype, value))
    }

    /// A constant of the type of `like` with `value` everywhere.
    #[track_caller]
    pub fn splat_like(&self, like: Value, value: f64) -> Value {
        self.full(self.ty(like), value)
    }

    /// The neutral element of a maximum, as a scalar: minus infinity or the lowest integer.
    #[track_caller]
    pub fn lowest(&self, dtype: DType) -> Value {
        self.literal(dtype.scalar(), || {
            ensure!(!dtype.is_narrow_float(), Dtype, "{dtype} has no lowest value to reduce from");
            Ok(literal::lowest(dtype))
        })
    }

    /// The neutral element of a minimum, as a scalar: infinity or the highest integer.
    #[track_caller]
    pub fn highest(&self, dtype: DType) -> Value {
        self.literal(dtype.scalar(), || {
            ensure!(!dtype.is_narrow_float(), Dtype, "{dtype} has no highest value to reduce from");
            Ok(literal::highest(dtype))
        })
    }

    /// `x + value`.
    #[track_caller]
    pub fn add_scalar(&self, x: Value, value: f64) -> Value {
        self.add(x, self.splat_like(x, value))
    }

    /// `x * value`.
    #[track_caller]
    pub fn mul_scalar(&self, x: Value, value: f64) -> Value {
        self.mul(x, self.splat_like(x, value))
    }

    /// Counts 0, 1, 2, ... along `axis` of `ty`.
    #[track_caller]
    pub fn iota(&self, ty: Type, axis: usize) -> Value {
        let fallback = [ty.clone()];
        self.many(Op::Iota, &[], &fallback, |_| {
            check_type(&ty)?;
            ensure!(axis < ty.rank(), Axis, "axis {axis} is out of range for {ty}");
            ensure!(ty.dtype.is_int() || ty.dtype.is_wide_float(), Dtype, "{} cannot count", ty.dtype);
            Ok(Built::pretty(format!(" dim = {axis} : {ty}"), vec![ty]))
        })[0]
    }

    #[track_caller]
    fn literal(&self, ty: Type, dense: impl FnOnce() -> Result<String, Fault>) -> Value {
        let fallback = [ty.clone()];
        self.many(Op::Constant, &[], &fallback, |_| {
            check_type(&ty)?;
            let dense = if ty.elements() == 0 { String::new() } else { dense()? };
            Ok(Built::pretty(format!(" dense<{dense}> : {ty}"), vec![ty]))
        })[0]
    }
}
