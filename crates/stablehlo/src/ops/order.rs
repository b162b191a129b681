//! Sorting, and the largest few.

use crate::emit::Built;
use crate::error::{Class, Fault, ensure};
use crate::func::{Func, Value};
use crate::op::Op;
use crate::types::{DType, Type};

impl Func {
    /// Tensors of one shape sorted together along `axis`. The closure takes one element of each, then another of each,
    /// and says as an i1 whether the first come before the second. It may not use values from outside.
    #[track_caller]
    pub fn sort(
        &self,
        operands: &[Value],
        axis: usize,
        stable: bool,
        before: impl FnOnce(&Func, &[Value], &[Value]) -> Value,
    ) -> Vec<Value> {
        let fallback = self.types_or_scalars(operands);
        // StableHLO interleaves the pairs; the closure gets them apart.
        let pairs: Vec<Type> = fallback.iter().flat_map(|ty| [ty.with_dims([]), ty.with_dims([])]).collect();
        let region = self.closed_region(&pairs, |f, values| {
            let left: Vec<Value> = values.iter().copied().step_by(2).collect();
            let right: Vec<Value> = values.iter().copied().skip(1).step_by(2).collect();
            vec![before(f, &left, &right)]
        });
        self.many(Op::Sort, operands, &fallback, |operands| {
            let first = operands.types.first();
            let first =
                first.ok_or_else(|| Fault { class: Class::Shape, message: "nothing to sort".to_owned() })?;
            ensure!(operands.types.iter().all(|ty| ty.dims == first.dims), Shape, "operands differ in shape");
            ensure!(axis < first.rank(), Axis, "axis {axis} is out of range for {first}");
            region.must_yield("the comparison", &[DType::Pred.scalar()])?;
            let attrs = [format!("dimension = {axis} : i64"), format!("is_stable = {stable}")];
            let results = operands.types.clone();
            Ok(Built::generic(&operands, &attrs, &[region.labelled()], results))
        })
    }

    /// The `k` largest along the last dimension, largest first, and their S32 indices; of equals, the lower index.
    #[track_caller]
    pub fn top_k(&self, x: Value, k: i64) -> (Value, Value) {
        let ty = self.type_or_scalar(x);
        let results = self.many(Op::TopK, &[x], &[ty.clone(), ty.with_dtype(DType::S32)], |operands| {
            let from = &operands.types[0];
            let last = from.dims.last().copied().unwrap_or(0);
            ensure!(from.rank() > 0 && (0..=last).contains(&k), Shape, "there are no {k} largest in {from}");
            ensure!(
                from.dtype.is_int() || from.dtype.is_wide_float(),
                Dtype,
                "{} has no order here",
                from.dtype
            );
            let mut dims = from.dims.clone();
            if let Some(last) = dims.last_mut() {
                *last = k;
            }
            let results = vec![from.with_dims(dims.clone()), DType::S32.tensor(dims)];
            let body =
                format!("({}, k = {k}) : {from} -> ({}, {})", operands.names(), results[0], results[1]);
            Ok(Built::pretty(body, results))
        });
        (results[0], results[1])
    }
}
