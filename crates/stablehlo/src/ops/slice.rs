//! Parts of tensors at static and dynamic places.

use crate::emit::{Built, Operands};
use crate::error::{Fault, ensure};
use crate::func::{Func, Value};
use crate::op::Op;
use crate::print::list;
use crate::types::Type;

impl Func {
    /// `x[start..limit]` by steps of `strides`, in every dimension.
    #[track_caller]
    pub fn slice(&self, x: Value, start: &[i64], limit: &[i64], strides: &[i64]) -> Value {
        self.one(Op::Slice, &[x], |operands| {
            let from = &operands.types[0];
            let rank = from.rank();
            let fits = [start, limit, strides].iter().all(|each| each.len() == rank);
            ensure!(fits, Attribute, "start, limit and strides need {rank} entries each");
            let mut result = from.clone();
            let mut ranges = Vec::new();
            for (at, dim) in result.dims.iter_mut().enumerate() {
                let (start, limit, stride) = (start[at], limit[at], strides[at]);
                let sound = 0 <= start && start <= limit && limit <= *dim;
                ensure!(sound, Shape, "{start}..{limit} is not inside dimension {at} of {from}");
                ensure!(stride > 0, Attribute, "the stride of dimension {at} is {stride}");
                *dim = (limit - start + stride - 1) / stride;
                ranges.push(if stride == 1 {
                    format!("{start}:{limit}")
                } else {
                    format!("{start}:{limit}:{stride}")
                });
            }
            let results = vec![result];
            let signature = operands.signature(&results);
            Ok(Built::pretty(format!(" {} [{}] : {signature}", operands.names(), list(&ranges)), results))
        })
    }

    /// `x[start..limit]` along one axis, whole along the others.
    #[track_caller]
    pub fn slice_axis(&self, x: Value, axis: usize, start: i64, limit: i64) -> Value {
        let dims = self.dims(x);
        let (mut starts, mut limits) = (vec![0; dims.len()], dims.clone());
        self.check_axis(x, axis);
        if axis < dims.len() {
            (starts[axis], limits[axis]) = (start, limit);
        }
        self.slice(x, &starts, &limits, &vec![1; dims.len()])
    }

    /// `x` cut along `axis` into parts of the given lengths, which must add up.
    #[track_caller]
    pub fn split(&self, x: Value, axis: usize, lengths: &[i64]) -> Vec<Value> {
        let whole = self.dim(x, axis);
        let total: i64 = lengths.iter().sum();
        let sound = || {
            ensure!(
                total == whole,
                Shape,
                "parts {lengths:?} do not add up to axis {axis} of {}",
                self.ty(x)
            );
            Ok(())
        };
        self.note("split", std::panic::Location::caller(), sound(), &[]);
        let mut start = 0;
        let cut = |&length: &i64| {
            start += length;
            (start - length, start)
        };
        let ranges: Vec<(i64, i64)> = lengths.iter().map(cut).collect();
        let mut parts = Vec::new();
        for (start, limit) in ranges {
            parts.push(self.slice_axis(x, axis, start, limit));
        }
        parts
    }

    #[track_caller]
    fn check_axis(&self, x: Value, axis: usize) {
        self.dim(x, axis);
    }

    /// The part of `sizes` that begins at `starts`, one integer scalar per dimension. Starts are moved so that the part
    /// lies inside.
    #[track_caller]
    pub fn dynamic_slice(&self, x: Value, starts: &[Value], sizes: &[i64]) -> Value {
        let operands: Vec<Value> = std::iter::once(x).chain(starts.iter().copied()).collect();
        self.one(Op::DynamicSlice, &operands, |operands| {
            let from = &operands.types[0];
            check_starts(&operands, 1, from.rank())?;
            ensure!(sizes.len() == from.rank(), Attribute, "{} sizes are given for {from}", sizes.len());
            let inside = sizes.iter().zip(&from.dims).all(|(&size, &dim)| (0..=dim).contains(&size));
            ensure!(inside, Shape, "a part of {sizes:?} is not inside {from}");
            let results = vec![from.with_dims(sizes)];
            let signature = operands.signature(&results);
            Ok(Built::pretty(
                format!(" {}, sizes = [{}] : {signature}", operands.names(), list(sizes)),
                results,
            ))
        })
    }

    /// `x[index]` along `axis`, with the axis gone; `index` is an integer scalar.
    #[track_caller]
    pub fn dynamic_index(&self, x: Value, axis: usize, index: Value) -> Value {
        self.check_axis(x, axis);
        let mut sizes = self.dims(x);
        let starts = self.starts_at(axis, index, sizes.len());
        if axis < sizes.len() {
            sizes[axis] = 1;
        }
        let part = self.dynamic_slice(x, &starts, &sizes);
        if axis < sizes.len() {
            sizes.remove(axis);
        }
        self.reshape(part, &sizes)
    }

    /// `x` with the part that begins at `starts` replaced by `part`. Starts are moved so that the part lies inside.
    #[track_caller]
    pub fn dynamic_update_slice(&self, x: Value, part: Value, starts: &[Value]) -> Value {
        let operands: Vec<Value> = [x, part].into_iter().chain(starts.iter().copied()).collect();
        self.one(Op::DynamicUpdateSlice, &operands, |operands| {
            let (whole, part) = (&operands.types[0], &operands.types[1]);
            check_starts(&operands, 2, whole.rank())?;
            ensure!(part.dtype == whole.dtype, Dtype, "the part is {}, not {}", part.dtype, whole.dtype);
            ensure!(fits_in(part, whole), Shape, "a part {part} is not inside {whole}");
            let results = vec![whole.clone()];
            Ok(Built::pretty(format!(" {} : {}", operands.names(), operands.signature(&results)), results))
        })
    }

    /// `x` with `x[index]` along `axis` replaced by `part`, which lacks the axis; `index` is an integer scalar.
    #[track_caller]
    pub fn dynamic_update_index(&self, x: Value, part: Value, axis: usize, index: Value) -> Value {
        self.check_axis(x, axis);
        let mut dims = self.dims(x);
        let starts = self.starts_at(axis, index, dims.len());
        if axis < dims.len() {
            dims[axis] = 1;
        }
        self.dynamic_update_slice(x, self.reshape(part, &dims), &starts)
    }

    #[track_caller]
    fn starts_at(&self, axis: usize, index: Value, rank: usize) -> Vec<Value> {
        let zero = self.full(self.ty(index), 0.0);
        (0..rank).map(|at| if at == axis { index } else { zero }).collect()
    }
}

fn check_starts(operands: &Operands, first: usize, rank: usize) -> Result<(), Fault> {
    let starts = &operands.types[first..];
    ensure!(starts.len() == rank, Attribute, "{} starts are given for rank {rank}", starts.len());
    for start in starts {
        ensure!(
            start.rank() == 0 && start.dtype.is_int(),
            Dtype,
            "a start is {start}, not an integer scalar"
        );
        ensure!(start == &starts[0], Dtype, "starts differ in element type");
    }
    Ok(())
}

fn fits_in(part: &Type, whole: &Type) -> bool {
    part.rank() == whole.rank() && part.dims.iter().zip(&whole.dims).all(|(part, whole)| part <= whole)
}
