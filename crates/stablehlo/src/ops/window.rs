//! Reductions over windows that slide.

use crate::emit::Built;
use crate::error::{Fault, ensure};
use crate::func::{Func, Value};
use crate::op::Op;
use crate::ops::reduce::Reducer;
use crate::print::{array, matrix};
use crate::types::Type;

/// A window over every dimension of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its length in each dimension.
    pub dims: Vec<i64>,
    /// How far it moves.
    pub strides: Vec<i64>,
    /// Elements of `init` before and after each dimension.
    pub padding: Vec<(i64, i64)>,
}

impl Window {
    /// Length 1, moving by 1, without padding, in every dimension.
    pub fn unit(rank: usize) -> Self {
        Window { dims: vec![1; rank], strides: vec![1; rank], padding: vec![(0, 0); rank] }
    }

    fn infer(&self, from: &Type) -> Result<Type, Fault> {
        let rank = from.rank();
        let fits = [self.dims.len(), self.strides.len(), self.padding.len()] == [rank; 3];
        ensure!(fits, Attribute, "the window needs {rank} dimensions, strides and paddings");
        let positive = self.dims.iter().chain(&self.strides).all(|&each| each > 0);
        ensure!(positive, Attribute, "window dimensions and strides must be positive");
        let mut result = from.clone();
        for (axis, dim) in result.dims.iter_mut().enumerate() {
            let padded = *dim + self.padding[axis].0 + self.padding[axis].1;
            ensure!(
                padded >= self.dims[axis],
                Shape,
                "the window is longer than axis {axis} of {from}, padded"
            );
            *dim = (padded - self.dims[axis]) / self.strides[axis] + 1;
        }
        Ok(result)
    }
}

impl Func {
    /// `x` reduced over each place of a window, starting from the scalar `init`.
    #[track_caller]
    pub fn reduce_window(&self, x: Value, init: Value, window: &Window, reducer: Reducer) -> Value {
        let element = self.type_or_scalar(x).with_dims([]);
        let region = self.closed_region(&[element.clone(), element.clone()], |f, values| {
            vec![f.combine(reducer, values[0], values[1])]
        });
        self.one(Op::ReduceWindow, &[x, init], |operands| {
            let [from, init] = operands.array()?;
            ensure!(*init == element, Dtype, "the start is {init}, not a scalar {}", element.dtype);
            let result = window.infer(from)?;
            region.must_yield("the reduction", std::slice::from_ref(&element))?;
            let padding: Vec<Vec<i64>> = window.padding.iter().map(|&(low, high)| vec![low, high]).collect();
            let attrs = [
                format!("padding = {}", matrix(&padding)),
                format!("window_dimensions = {}", array(&window.dims)),
                format!("window_strides = {}", array(&window.strides)),
            ];
            Ok(Built::generic(&operands, &attrs, &[region.labelled()], vec![result]))
        })
    }

    /// Sums of `x` up to and including each place along `axis`.
    #[track_caller]
    pub fn cumsum(&self, x: Value, axis: usize) -> Value {
        let ty = self.ty(x);
        let length = self.dim(x, axis);
        let init = self.neutral(Reducer::Add, ty.dtype);
        let mut window = Window::unit(ty.rank());
        if axis < ty.rank() && length > 0 {
            window.dims[axis] = length;
            window.padding[axis] = (length - 1, 0);
        }
        self.reduce_window(x, init, &window, Reducer::Add)
    }
}
