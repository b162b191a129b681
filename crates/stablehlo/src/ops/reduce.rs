//! Many elements made one.

use crate::emit::{Built, Operands, check_axes};
use crate::error::{Fault, ensure};
use crate::func::{Func, Value};
use crate::op::Op;
use crate::print::{array, list};
use crate::types::{DType, Type};

/// How two elements become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reducer {
    Add,
    Mul,
    Max,
    Min,
    And,
    Or,
}

impl Reducer {
    fn op(self) -> Op {
        match self {
            Reducer::Add => Op::Add,
            Reducer::Mul => Op::Multiply,
            Reducer::Max => Op::Maximum,
            Reducer::Min => Op::Minimum,
            Reducer::And => Op::And,
            Reducer::Or => Op::Or,
        }
    }

    fn check(self, dtype: DType) -> Result<(), Fault> {
        let holds = match self {
            Reducer::Add | Reducer::Mul => dtype.is_int() || dtype.is_wide_float(),
            Reducer::Max | Reducer::Min => !dtype.is_narrow_float(),
            Reducer::And | Reducer::Or => dtype.is_int() || dtype == DType::Pred,
        };
        ensure!(holds, Dtype, "{dtype} cannot be reduced by {}", self.op().mnemonic());
        Ok(())
    }
}

impl Func {
    /// The operation a reducer stands for.
    #[track_caller]
    pub(crate) fn combine(&self, reducer: Reducer, a: Value, b: Value) -> Value {
        match reducer {
            Reducer::Add => self.add(a, b),
            Reducer::Mul => self.mul(a, b),
            Reducer::Max => self.max(a, b),
            Reducer::Min => self.min(a, b),
            Reducer::And => self.and(a, b),
            Reducer::Or => self.or(a, b),
        }
    }

    /// The scalar that changes nothing under a reducer.
    #[track_caller]
    pub(crate) fn neutral(&self, reducer: Reducer, dtype: DType) -> Value {
        match reducer {
            Reducer::Add => self.full(dtype.scalar(), 0.0),
            Reducer::Mul => self.full(dtype.scalar(), 1.0),
            Reducer::Max => self.lowest(dtype),
            Reducer::Min => self.highest(dtype),
            Reducer::Or => self.full(dtype.scalar(), 0.0),
            Reducer::And => self.not(self.full(dtype.scalar(), 0.0)),
        }
    }

    /// `x` reduced along `axes`, which go away, starting from the scalar `init`.
    #[track_caller]
    pub fn reduce(&self, x: Value, init: Value, axes: &[usize], reducer: Reducer) -> Value {
        self.one(Op::Reduce, &[x, init], |operands| {
            let [from, init] = operands.array()?;
            reducer.check(from.dtype)?;
            ensure!(*init == from.dtype.scalar(), Dtype, "the start is {init}, not a scalar {}", from.dtype);
            let results = vec![reduced(from, axes)?];
            let (x, init) = (&operands.names[0], &operands.names[1]);
            let (op, axes) = (reducer.op().mnemonic(), list(axes));
            let signature = operands.signature(&results);
            let body = format!("({x} init: {init}) applies {op} across dimensions = [{axes}] : {signature}");
            Ok(Built::pretty(body, results))
        })
    }

    /// Several tensors of one shape reduced together: the closure takes the running elements, then the next ones, and
    /// returns the new running elements. It may not use values from outside.
    #[track_caller]
    pub fn reduce_with(
        &self,
        operands: &[Value],
        inits: &[Value],
        axes: &[usize],
        body: impl FnOnce(&Func, &[Value], &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let count = operands.len();
        let elements: Vec<Type> = self.types_or_scalars(operands).iter().map(|ty| ty.with_dims([])).collect();
        let pairs = [elements.clone(), elements.clone()].concat();
        let region = self.closed_region(&pairs, |f, values| body(f, &values[..count], &values[count..]));
        let all = [operands, inits].concat();
        self.many(Op::Reduce, &all, &elements, |operands| {
            let results = reduced_together(&operands, count, axes)?;
            region.must_yield("the reduction", &elements)?;
            let attrs = [format!("dimensions = {}", array(axes))];
            Ok(Built::generic(&operands, &attrs, &[region.labelled()], results))
        })
    }

    /// The sum along `axes`, which go away.
    #[track_caller]
    pub fn sum(&self, x: Value, axes: &[usize]) -> Value {
        self.reduce_from_neutral(x, axes, Reducer::Add)
    }

    /// The maximum along `axes`, which go away; NaN if there is one.
    #[track_caller]
    pub fn reduce_max(&self, x: Value, axes: &[usize]) -> Value {
        self.reduce_from_neutral(x, axes, Reducer::Max)
    }

    /// The minimum along `axes`, which go away; NaN if there is one.
    #[track_caller]
    pub fn reduce_min(&self, x: Value, axes: &[usize]) -> Value {
        self.reduce_from_neutral(x, axes, Reducer::Min)
    }

    /// Whether any boolean along `axes` is true.
    #[track_caller]
    pub fn any(&self, x: Value, axes: &[usize]) -> Value {
        self.reduce_from_neutral(x, axes, Reducer::Or)
    }

    /// Whether all booleans along `axes` are true.
    #[track_caller]
    pub fn all(&self, x: Value, axes: &[usize]) -> Value {
        self.reduce_from_neutral(x, axes, Reducer::And)
    }

    #[track_caller]
    fn reduce_from_neutral(&self, x: Value, axes: &[usize], reducer: Reducer) -> Value {
        let init = self.neutral(reducer, self.dtype(x));
        self.reduce(x, init, axes, reducer)
    }

    /// The S32 index of the largest element along `axis`, which goes away: the first of equals; NaN counts as largest.
    #[track_caller]
    pub fn argmax(&self, x: Value, axis: usize) -> Value {
        let ty = self.ty(x);
        let places = self.iota(ty.with_dtype(DType::S32), axis);
        let inits = [self.lowest(ty.dtype), self.scalar(0i32)];
        let results = self.reduce_with(&[x, places], &inits, &[axis], |f, best, next| {
            let ((value, at), (other, other_at)) = ((best[0], best[1]), (next[0], next[1]));
            let (nan, other_nan) = (f.ne(value, value), f.ne(other, other));
            let greater = f.or(f.gt(value, other), f.and(nan, f.not(other_nan)));
            let tied = f.or(f.eq(value, other), f.and(nan, other_nan));
            let keep = f.or(greater, f.and(tied, f.lt(at, other_at)));
            vec![f.select(keep, value, other), f.select(keep, at, other_at)]
        });
        results[1]
    }
}

/// The type of `from` without `axes`.
fn reduced(from: &Type, axes: &[usize]) -> Result<Type, Fault> {
    check_axes("axis", axes, from.rank())?;
    let kept = (0..from.rank()).filter(|axis| !axes.contains(axis)).map(|axis| from.dims[axis]);
    Ok(from.with_dims(kept.collect::<Vec<_>>()))
}

fn reduced_together(operands: &Operands, count: usize, axes: &[usize]) -> Result<Vec<Type>, Fault> {
    let all = operands.types.len();
    ensure!(
        count > 0 && all == 2 * count,
        Shape,
        "{count} operands need as many starts, not {}",
        all - count
    );
    let (tensors, inits) = operands.types.split_at(count);
    let mut results = Vec::new();
    for (from, init) in tensors.iter().zip(inits) {
        ensure!(from.dims == tensors[0].dims, Shape, "operands differ in shape");
        ensure!(*init == from.dtype.scalar(), Dtype, "a start is {init}, not a scalar {}", from.dtype);
        results.push(reduced(from, axes)?);
    }
    Ok(results)
}
