//! What a layer computes, for the rows of a chunk or of a batch alike, and where the two differ.

pub(crate) mod conv;
pub(crate) mod ffn;
pub(crate) mod indexer;
pub(crate) mod kda;
pub(crate) mod linear;
pub(crate) mod mla;
pub(crate) mod moe;
pub(crate) mod norm;
pub(crate) mod residual;

use model::ModelConfig;
use model::weights::Formats;
use stablehlo::{Func, Value};

use crate::mesh::Share;
use crate::{Output, StateArray};

pub(crate) use linear::Matrix;
use linear::linear;

/// One layer being built: the builder, the shapes, where its weights come from, and which rows of the state are its.
pub(crate) struct Layer<'a> {
    pub(crate) f: &'a Func,
    pub(crate) config: &'a ModelConfig,
    pub(crate) formats: &'a Formats,
    /// Which part of the heads and experts this is.
    pub(crate) share: Share,
    /// Finds a weight of this layer by role, such as `kda.project`.
    pub(crate) weight: &'a dyn Fn(&Func, &str) -> Value,
    /// Finds a weight matrix of this layer by role, however it is held, or the member of a stack that the values name.
    pub(crate) matrix: &'a dyn Fn(&Func, &str, &[Value]) -> Matrix,
    /// s32 scalar: this layer's row of the state arrays of its kind of attention.
    pub(crate) index: Value,
}

impl Layer<'_> {
    /// The sum of what the mesh's devices have.
    pub(crate) fn sum(&self, x: Value) -> Value {
        self.share.mesh.sum(self.f, x)
    }

    /// A weight held in floats.
    pub(crate) fn weight(&self, role: &str) -> Value {
        (self.weight)(self.f, role)
    }

    /// A matrix, or a stack of them.
    pub(crate) fn matrix(&self, role: &str) -> Matrix {
        (self.matrix)(self.f, role, &[])
    }

    /// One expert's matrix, looked up inside a loop whose builder is `f`.
    pub(crate) fn expert(&self, f: &Func, role: &str, expert: Value) -> Matrix {
        (self.matrix)(f, role, &[expert])
    }

    /// `x [rows, in]` times each of the matrices of `role`, given by name and rows; they are joined in one where the mesh
    /// allows it.
    pub(crate) fn rows<const N: usize>(&self, x: Value, role: &str, parts: [(&str, usize); N]) -> [Value; N] {
        let f = self.f;
        if !self.formats.joined {
            return parts.map(|(name, _)| linear(f, x, self.matrix(&format!("{role}.{name}"))));
        }
        let lengths = parts.map(|(_, rows)| rows as i64);
        let parts = f.split(linear(f, x, self.matrix(role)), 1, &lengths);
        std::array::from_fn(|at| parts[at])
    }
}

/// The state arrays while a program threads them through its layers, and what it collects layer by layer for its caller.
#[derive(Clone, Debug)]
pub(crate) struct State {
    arrays: Vec<(StateArray, Value)>,
    collected: Vec<(Output, Value)>,
}

impl State {
    pub(crate) fn new(arrays: Vec<(StateArray, Value)>, collected: Vec<(Output, Value)>) -> Self {
        Self { arrays, collected }
    }

    /// An array as it is now. Asking for one that the model does not have shows as an ill-typed operation.
    pub(crate) fn get(&self, what: StateArray) -> Value {
        let place = self.arrays.iter().position(|(array, _)| *array == what);
        self.arrays[place.unwrap_or(0)].1
    }

    pub(crate) fn set(&mut self, what: StateArray, value: Value) {
        self.arrays.iter_mut().filter(|(array, _)| *array == what).for_each(|(_, held)| *held = value);
    }

    /// Keeps a layer's share of an output, at its row, if the program collects that output.
    pub(crate) fn collect(&mut self, f: &Func, what: Output, row: Value, share: Value) {
        for (_, all) in self.collected.iter_mut().filter(|(output, _)| *output == what) {
            *all = f.dynamic_update_index(*all, f.convert(share, f.dtype(*all)), 0, row);
        }
    }

    pub(crate) fn arrays(&self) -> &[(StateArray, Value)] {
        &self.arrays
    }

    pub(crate) fn collected(&self) -> &[(Output, Value)] {
        &self.collected
    }

    pub(crate) fn values(&self) -> Vec<Value> {
        let arrays = self.arrays.iter().map(|(_, value)| *value);
        arrays.chain(self.collected.iter().map(|(_, value)| *value)).collect()
    }

    /// The same arrays after a loop has carried them.
    pub(crate) fn carried(&self, values: &[Value]) -> Self {
        let (arrays, collected) = values.split_at(self.arrays.len());
        Self {
            arrays: self.arrays.iter().zip(arrays).map(|((what, _), value)| (*what, *value)).collect(),
            collected: self
                .collected
                .iter()
                .zip(collected)
                .map(|((what, _), value)| (*what, *value))
                .collect(),
        }
    }
}

/// What differs between the rows of one sequence's chunk and those of a batch of sequences.
pub(crate) trait Phase {
    /// Normed rows `[rows, hidden]` to the delta attention's output `[rows, hidden]`.
    fn kda(&self, layer: &Layer<'_>, x: Value, state: &mut State) -> Value;
    /// Normed rows `[rows, hidden]` to the latent attention's output `[rows, hidden]`.
    fn mla(&self, layer: &Layer<'_>, x: Value, state: &mut State) -> Value;
    /// Keeps what the latent attention caches of normed rows `[rows, hidden]`, without attending.
    fn cache(&self, layer: &Layer<'_>, x: Value, state: &mut State);
}
