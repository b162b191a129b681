//! Operations that arrange elements anew.

use crate::emit::{Built, Operands, check_axes};
use crate::error::{Fault, ensure};
use crate::func::{Func, Value, check_type};
use crate::op::Op;
use crate::print::list;
use crate::types::{DType, Type};

/// ` %x{attrs} : (t, ...) -> t`.
fn with_signature(operands: &Operands, attrs: &str, result: Type) -> Built {
    let results = vec![result];
    Built::pretty(format!(" {}{attrs} : {}", operands.names(), operands.signature(&results)), results)
}

impl Func {
    /// `x` copied along new or unit dimensions: dimension `i` of `x` becomes dimension `axes[i]` of the result.
    #[track_caller]
    pub fn broadcast_in_dim(&self, x: Value, dims: &[i64], axes: &[usize]) -> Value {
        self.one(Op::BroadcastInDim, &[x], |operands| {
            let from = &operands.types[0];
            let result = from.with_dims(dims);
            check_type(&result)?;
            ensure!(axes.len() == from.rank(), Axis, "{} axes are given for {from}", axes.len());
            check_axes("axis", axes, dims.len())?;
            for (&dim, &axis) in from.dims.iter().zip(axes) {
                let fits = dim == 1 || dim == dims[axis];
                ensure!(fits, Shape, "a dimension of {dim} cannot become axis {axis} of {result}");
            }
            Ok(with_signature(&operands, &format!(", dims = [{}]", list(axes)), result))
        })
    }

    /// `x` copied to the dimensions of `like`; dimension `i` of `x` becomes dimension `axes[i]`.
    #[track_caller]
    pub fn broadcast_like(&self, x: Value, like: Value, axes: &[usize]) -> Value {
        self.broadcast_in_dim(x, &self.dims(like), axes)
    }

    /// The same elements in row-major order under other dimensions. To its own dimensions it is `x` itself.
    #[track_caller]
    pub fn reshape(&self, x: Value, dims: &[i64]) -> Value {
        if self.type_or_scalar(x).dims == dims {
            return x;
        }
        let fallback = [self.type_or_scalar(x).with_dims(dims)];
        self.many(Op::Reshape, &[x], &fallback, |operands| {
            let from = &operands.types[0];
            let result = from.with_dims(dims);
            check_type(&result)?;
            ensure!(from.elements() == result.elements(), Shape, "{from} cannot become {result}");
            Ok(with_signature(&operands, "", result))
        })[0]
    }

    /// Dimension `i` of the result is dimension `permutation[i]` of `x`.
    #[track_caller]
    pub fn transpose(&self, x: Value, permutation: &[usize]) -> Value {
        self.one(Op::Transpose, &[x], |operands| {
            let from = &operands.types[0];
            ensure!(
                permutation.len() == from.rank(),
                Axis,
                "permutation {permutation:?} does not fit {from}"
            );
            check_axes("axis", permutation, from.rank())?;
            let dims: Vec<i64> = permutation.iter().map(|&axis| from.dims[axis]).collect();
            let result = from.with_dims(dims);
            Ok(with_signature(&operands, &format!(", dims = [{}]", list(permutation)), result))
        })
    }

    /// The operands one after the other along `axis`.
    #[track_caller]
    pub fn concatenate(&self, parts: &[Value], axis: usize) -> Value {
        self.one(Op::Concatenate, parts, |operands| {
            ensure!(!operands.types.is_empty(), Shape, "there is nothing to concatenate");
            let first = &operands.types[0];
            ensure!(axis < first.rank(), Axis, "axis {axis} is out of range for {first}");
            let mut result = first.clone();
            result.dims[axis] = 0;
            for part in &operands.types {
                ensure!(part.dtype == first.dtype, Dtype, "operands differ in element type");
                let fits = part.rank() == first.rank()
                    && (0..first.rank()).all(|at| at == axis || part.dims[at] == first.dims[at]);
                ensure!(fits, Shape, "operands differ beside axis {axis}");
                result.dims[axis] += part.dims[axis];
            }
            Ok(with_signature(&operands, &format!(", dim = {axis}"), result))
        })
    }

    /// `x` with the order along `axes` turned around.
    #[track_caller]
    pub fn reverse(&self, x: Value, axes: &[usize]) -> Value {
        self.one(Op::Reverse, &[x], |operands| {
            let ty = operands.types[0].clone();
            check_axes("axis", axes, ty.rank())?;
            Ok(Built::pretty(format!(" {}, dims = [{}] : {ty}", operands.names(), list(axes)), vec![ty]))
        })
    }

    /// `x` surrounded by the scalar `value`: per dimension, `low` elements before, `high` after (negative ones cut
    /// away), `interior` between neighbours.
    #[track_caller]
    pub fn pad(&self, x: Value, value: Value, low: &[i64], high: &[i64], interior: &[i64]) -> Value {
        self.one(Op::Pad, &[x, value], |operands| {
            let [from, value] = operands.array()?;
            ensure!(
                *value == from.dtype.scalar(),
                Dtype,
                "the padding is {value}, not a scalar {}",
                from.dtype
            );
            let rank = from.rank();
            let fits = [low, high, interior].iter().all(|each| each.len() == rank);
            ensure!(fits, Attribute, "low, high and interior need {rank} entries each");
            ensure!(interior.iter().all(|&each| each >= 0), Attribute, "interior padding is negative");
            let mut result = from.clone();
            for (at, dim) in result.dims.iter_mut().enumerate() {
                *dim += low[at] + high[at] + (*dim - 1).max(0) * interior[at];
                ensure!(*dim >= 0, Shape, "dimension {at} would become {dim}");
            }
            let attrs =
                format!(", low = [{}], high = [{}], interior = [{}]", list(low), list(high), list(interior));
            Ok(with_signature(&operands, &attrs, result))
        })
    }

    /// The same bits read as `dtype`. To a narrower type a last dimension of their ratio is added, lowest bits first;
    /// to a wider one the last dimension must be the ratio, and goes away.
    #[track_caller]
    pub fn bitcast_convert(&self, x: Value, dtype: DType) -> Value {
        self.one(Op::BitcastConvert, &[x], |operands| {
            let result = bitcast_type(&operands.types[0], dtype)?;
            Ok(with_signature(&operands, "", result))
        })
    }
}

fn bitcast_type(from: &Type, to: DType) -> Result<Type, Fault> {
    let (narrow, wide) = (from.dtype.bits().min(to.bits()), from.dtype.bits().max(to.bits()));
    let pred = from.dtype == DType::Pred || to == DType::Pred;
    ensure!(!pred || from.dtype == to, Dtype, "{} cannot be read as {to}", from.dtype);
    let mut result = from.with_dtype(to);
    let ratio = i64::from(wide / narrow);
    if from.dtype.bits() > to.bits() {
        result.dims.push(ratio);
    } else if from.dtype.bits() < to.bits() {
        let last = result.dims.pop();
        ensure!(last == Some(ratio), Shape, "the last dimension must be {ratio} to read {from} as {to}");
    }
    Ok(result)
}
