//! Rows and blocks taken from, and written to, places that other tensors name.

use crate::emit::{Built, Operands, check_axes};
use crate::error::{Fault, ensure};
use crate::func::{Func, Value};
use crate::op::Op;
use crate::ops::reduce::Reducer;
use crate::print::{array, list};
use crate::types::Type;

/// The dimension numbers of a gather, as StableHLO defines them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gather {
    /// Dimensions of the result that run inside a slice.
    pub offset_dims: Vec<usize>,
    /// Dimensions of the operand in which a slice has length 1 and which the result lacks.
    pub collapsed_slice_dims: Vec<usize>,
    pub operand_batching_dims: Vec<usize>,
    pub start_indices_batching_dims: Vec<usize>,
    /// Entry `k` of an index vector is a start in dimension `start_index_map[k]` of the operand.
    pub start_index_map: Vec<usize>,
    /// The dimension of the indices that holds an index vector; their rank if an index is a bare number.
    pub index_vector_dim: usize,
    pub slice_sizes: Vec<i64>,
    /// A promise that lets the compiler read in order.
    pub indices_are_sorted: bool,
}

/// The dimension numbers of a scatter, as StableHLO defines them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scatter {
    /// Dimensions of the updates that run inside a window.
    pub update_window_dims: Vec<usize>,
    /// Dimensions of the operand in which a window has length 1 and which the updates lack.
    pub inserted_window_dims: Vec<usize>,
    pub input_batching_dims: Vec<usize>,
    pub scatter_indices_batching_dims: Vec<usize>,
    /// Entry `k` of an index vector is a start in dimension `scatter_dims_to_operand_dims[k]` of the operand.
    pub scatter_dims_to_operand_dims: Vec<usize>,
    pub index_vector_dim: usize,
    pub indices_are_sorted: bool,
    /// A promise that no place is written twice.
    pub unique_indices: bool,
}

/// What a scattered element does to the one in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Update {
    /// Takes its place. Where two meet, either may win.
    Replace,
    /// Is combined with it.
    Combine(Reducer),
}

impl Func {
    /// Slices of `operand` whose starts `indices` name; starts are moved so that the slices lie inside.
    #[track_caller]
    pub fn gather(&self, operand: Value, indices: Value, how: &Gather) -> Value {
        self.one(Op::Gather, &[operand, indices], |operands| {
            let result = how.infer(&operands.types[0], &operands.types[1])?;
            let numbers = format!(
                "dimension_numbers = #stablehlo.gather<offset_dims = [{}], collapsed_slice_dims = [{}], \
                 operand_batching_dims = [{}], start_indices_batching_dims = [{}], start_index_map = [{}], \
                 index_vector_dim = {}>",
                list(&how.offset_dims),
                list(&how.collapsed_slice_dims),
                list(&how.operand_batching_dims),
                list(&how.start_indices_batching_dims),
                list(&how.start_index_map),
                how.index_vector_dim
            );
            let sorted = format!("indices_are_sorted = {}", how.indices_are_sorted);
            let sizes = format!("slice_sizes = {}", array(&how.slice_sizes));
            Ok(Built::generic(&operands, &[numbers, sorted, sizes], &[], vec![result]))
        })
    }

    /// `operand [rows, rest...]` at `indices [at...]`: `[at..., rest...]`. Indices are moved into range.
    #[track_caller]
    pub fn take_rows(&self, operand: Value, indices: Value) -> Value {
        let (from, at) = (self.type_or_scalar(operand), self.type_or_scalar(indices));
        let how = leading(&from, at.rank(), at.rank(), 1);
        self.gather(operand, indices, &how)
    }

    /// `operand [d0, ..., d(k-1), rest...]` at `indices [at..., k]`, whose last dimension addresses the first `k`
    /// dimensions: `[at..., rest...]`. Indices are moved into range.
    #[track_caller]
    pub fn take_at(&self, operand: Value, indices: Value) -> Value {
        let (from, at) = (self.type_or_scalar(operand), self.type_or_scalar(indices));
        let depth = at.dims.last().map_or(0, |&depth| depth as usize);
        let how = leading(&from, at.rank().saturating_sub(1), at.rank().saturating_sub(1), depth);
        self.gather(operand, indices, &how)
    }

    /// `operand` with `updates` put, or combined, at the places that `indices` name. Windows that lie partly outside
    /// are dropped.
    #[track_caller]
    pub fn scatter(
        &self,
        operand: Value,
        indices: Value,
        updates: Value,
        how: &Scatter,
        update: Update,
    ) -> Value {
        let element = self.type_or_scalar(operand).dtype.scalar();
        let region = self.closed_region(&[element.clone(), element.clone()], |f, values| match update {
            Update::Replace => vec![values[1]],
            Update::Combine(reducer) => vec![f.combine(reducer, values[0], values[1])],
        });
        self.one(Op::Scatter, &[operand, indices, updates], |operands| {
            how.check(&operands)?;
            region.must_yield("the update", &[element])?;
            let numbers = format!(
                "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [{}], \
                 inserted_window_dims = [{}], input_batching_dims = [{}], scatter_indices_batching_dims = [{}], \
                 scatter_dims_to_operand_dims = [{}], index_vector_dim = {}>",
                list(&how.update_window_dims),
                list(&how.inserted_window_dims),
                list(&how.input_batching_dims),
                list(&how.scatter_indices_batching_dims),
                list(&how.scatter_dims_to_operand_dims),
                how.index_vector_dim
            );
            let attrs = [
                numbers,
                format!("indices_are_sorted = {}", how.indices_are_sorted),
                format!("unique_indices = {}", how.unique_indices),
            ];
            let results = vec![operands.types[0].clone()];
            Ok(Built::generic(&operands, &attrs, &[region.labelled()], results))
        })
    }

    /// `operand [rows, rest...]` with `updates [at..., rest...]` put at `indices [at...]`. Rows out of range are
    /// dropped, which makes an index of `rows` a way to write nothing.
    #[track_caller]
    pub fn scatter_rows(&self, operand: Value, indices: Value, updates: Value, update: Update) -> Value {
        let (to, at) = (self.type_or_scalar(operand), self.type_or_scalar(indices));
        let how = leading(&to, at.rank(), at.rank(), 1).as_scatter();
        self.scatter(operand, indices, updates, &how, update)
    }

    /// `operand [d0, ..., d(k-1), rest...]` with `updates [at..., rest...]` put at `indices [at..., k]`, whose last
    /// dimension addresses the first `k` dimensions. Places out of range are dropped.
    #[track_caller]
    pub fn scatter_at(&self, operand: Value, indices: Value, updates: Value, update: Update) -> Value {
        let (to, at) = (self.type_or_scalar(operand), self.type_or_scalar(indices));
        let depth = at.dims.last().map_or(0, |&depth| depth as usize);
        let how = leading(&to, at.rank().saturating_sub(1), at.rank().saturating_sub(1), depth).as_scatter();
        self.scatter(operand, indices, updates, &how, update)
    }
}

/// Whole slices over all but the first `depth` dimensions, with `at` index dimensions first in the result.
fn leading(operand: &Type, at: usize, index_vector_dim: usize, depth: usize) -> Gather {
    let rank = operand.rank();
    let depth = depth.min(rank);
    let slice_sizes = operand.dims.iter().enumerate().map(|(axis, &dim)| if axis < depth { 1 } else { dim });
    Gather {
        offset_dims: (at..at + rank - depth).collect(),
        collapsed_slice_dims: (0..depth).collect(),
        start_index_map: (0..depth).collect(),
        index_vector_dim,
        slice_sizes: slice_sizes.collect(),
        ..Gather::default()
    }
}

impl Gather {
    fn as_scatter(&self) -> Scatter {
        Scatter {
            update_window_dims: self.offset_dims.clone(),
            inserted_window_dims: self.collapsed_slice_dims.clone(),
            scatter_dims_to_operand_dims: self.start_index_map.clone(),
            index_vector_dim: self.index_vector_dim,
            ..Scatter::default()
        }
    }

    fn infer(&self, operand: &Type, indices: &Type) -> Result<Type, Fault> {
        ensure!(self.slice_sizes.len() == operand.rank(), Attribute, "slice sizes do not fit {operand}");
        for (axis, (&size, &dim)) in self.slice_sizes.iter().zip(&operand.dims).enumerate() {
            ensure!(
                (0..=dim).contains(&size),
                Shape,
                "a slice of {size} is not inside axis {axis} of {operand}"
            );
            let dropped =
                self.collapsed_slice_dims.contains(&axis) || self.operand_batching_dims.contains(&axis);
            ensure!(!dropped || size <= 1, Shape, "axis {axis} is dropped with a slice of {size}");
        }
        let plan = Plan {
            window: &self.offset_dims,
            dropped: &self.collapsed_slice_dims,
            operand_batch: &self.operand_batching_dims,
            index_batch: &self.start_indices_batching_dims,
            index_map: &self.start_index_map,
            index_vector_dim: self.index_vector_dim,
        };
        let (at, kept) = plan.check(operand, indices)?;
        let mut batch = at.iter();
        let mut slice = kept.iter().map(|&axis| self.slice_sizes[axis]);
        let rank = at.len() + kept.len();
        check_axes("offset axis", &self.offset_dims, rank)?;
        let dims: Vec<i64> = (0..rank)
            .filter_map(|axis| match self.offset_dims.contains(&axis) {
                true => slice.next(),
                false => batch.next().copied(),
            })
            .collect();
        Ok(operand.with_dims(dims))
    }
}

impl Scatter {
    fn check(&self, operands: &Operands) -> Result<(), Fault> {
        let [operand, indices, updates] = operands.array()?;
        ensure!(
            operand.dtype == updates.dtype,
            Dtype,
            "updates are {}, not {}",
            updates.dtype,
            operand.dtype
        );
        let plan = Plan {
            window: &self.update_window_dims,
            dropped: &self.inserted_window_dims,
            operand_batch: &self.input_batching_dims,
            index_batch: &self.scatter_indices_batching_dims,
            index_map: &self.scatter_dims_to_operand_dims,
            index_vector_dim: self.index_vector_dim,
        };
        let (at, kept) = plan.check(operand, indices)?;
        let rank = at.len() + kept.len();
        ensure!(updates.rank() == rank, Shape, "updates {updates} need rank {rank}");
        check_axes("window axis", &self.update_window_dims, rank)?;
        let (mut batch, mut window) = (at.iter(), kept.iter());
        for (axis, &dim) in updates.dims.iter().enumerate() {
            if self.update_window_dims.contains(&axis) {
                let bound = window.next().map_or(0, |&axis| operand.dims[axis]);
                ensure!(dim <= bound, Shape, "axis {axis} of the updates is {dim}, the operand has {bound}");
            } else {
                let wanted = batch.next().copied().unwrap_or_default();
                ensure!(
                    dim == wanted,
                    Shape,
                    "axis {axis} of the updates is {dim}, the indices have {wanted}"
                );
            }
        }
        Ok(())
    }
}

/// What gather and scatter have in common.
struct Plan<'a> {
    window: &'a [usize],
    dropped: &'a [usize],
    operand_batch: &'a [usize],
    index_batch: &'a [usize],
    index_map: &'a [usize],
    index_vector_dim: usize,
}

impl Plan<'_> {
    /// The indices' dimensions without the index vector's, and the operand's axes that stay in a window.
    fn check(&self, operand: &Type, indices: &Type) -> Result<(Vec<i64>, Vec<usize>), Fault> {
        ensure!(indices.dtype.is_int(), Dtype, "indices are {}, not integers", indices.dtype);
        let vector = self.index_vector_dim;
        ensure!(vector <= indices.rank(), Axis, "index vector axis {vector} is out of range for {indices}");
        let length = indices.dims.get(vector).copied().unwrap_or(1);
        let map = self.index_map;
        ensure!(
            length == map.len() as i64,
            Shape,
            "an index of {length} entries addresses {} axes",
            map.len()
        );
        check_axes("operand axis", map, operand.rank())?;
        let gone = [self.dropped, self.operand_batch].concat();
        check_axes("operand axis", &gone, operand.rank())?;
        check_axes("index axis", self.index_batch, indices.rank())?;
        let paired = self.operand_batch.len() == self.index_batch.len();
        ensure!(paired, Axis, "batching axes do not pair up");
        for (&from, &at) in self.operand_batch.iter().zip(self.index_batch) {
            ensure!(operand.dims[from] == indices.dims[at], Shape, "batching axes {from} and {at} differ");
        }
        let kept: Vec<usize> = (0..operand.rank()).filter(|axis| !gone.contains(axis)).collect();
        let fits = kept.len() == self.window.len();
        ensure!(
            fits,
            Attribute,
            "{} window axes are named for {} axes that stay",
            self.window.len(),
            kept.len()
        );
        let at = indices.dims.iter().enumerate().filter(|(axis, _)| *axis != vector).map(|(_, &dim)| dim);
        Ok((at.collect(), kept))
    }
}
