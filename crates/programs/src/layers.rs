//! What a layer computes, for the rows of a chunk or of a batch alike, and where the two differ.

pub(crate) mod conv;
pub(crate) mod ffn;
pub(crate) mod kda;
pub(crate) mod mla;
pub(crate) mod moe;
pub(crate) mod norm;

use model::ModelConfig;
use stablehlo::{Func, Value};

/// One layer being built: the builder, the shapes, where its weights come from, and which rows of the state are its.
pub(crate) struct Layer<'a> {
    pub(crate) f: &'a Func,
    pub(crate) config: &'a ModelConfig,
    /// Finds a weight of this layer by role, such as `kda.project`.
    pub(crate) weight: &'a dyn Fn(&Func, &str) -> Value,
    /// s32 scalar: this layer's row of the state arrays of its kind of attention.
    pub(crate) index: Value,
}

impl Layer<'_> {
    pub(crate) fn weight(&self, role: &str) -> Value {
        (self.weight)(self.f, role)
    }
}

/// The state arrays while a program threads them through its layers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub(crate) latents: Value,
    pub(crate) recurrent: Value,
    pub(crate) tails: Value,
    /// f32 `[latent_layers, C, latent_width]`, what prefill gives back of the chunk; decode has none.
    pub(crate) chunk_latents: Option<Value>,
}

impl State {
    pub(crate) fn values(&self) -> Vec<Value> {
        [self.latents, self.recurrent, self.tails].into_iter().chain(self.chunk_latents).collect()
    }

    /// The same arrays after a loop has carried them.
    pub(crate) fn carried(values: &[Value]) -> Self {
        Self {
            latents: values[0],
            recurrent: values[1],
            tails: values[2],
            chunk_latents: values.get(3).copied(),
        }
    }
}

/// What differs between the rows of one sequence's chunk and those of a batch of sequences.
pub(crate) trait Phase {
    /// Normed rows `[rows, hidden]` to the delta attention's output `[rows, hidden]`.
    fn kda(&self, layer: &Layer<'_>, x: Value, state: &mut State) -> Value;
    /// Normed rows `[rows, hidden]` to the latent attention's output `[rows, hidden]`.
    fn mla(&self, layer: &Layer<'_>, x: Value, state: &mut State) -> Value;
}
