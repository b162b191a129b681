//! How a layer's halves are joined to what came before: one sum, block attention residuals, or hyper-connections.

mod blocks;
mod streams;

use model::{ModelConfig, Residual};
use stablehlo::{Func, Value};

use super::Layer;

/// Which half of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Attention,
    Ffn,
}

impl Half {
    pub(crate) fn role(self, part: &str) -> String {
        match self {
            Self::Attention => format!("attention_mix.{part}"),
            Self::Ffn => format!("ffn_mix.{part}"),
        }
    }
}

/// A layer's number in the model.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    /// Known as the program is written.
    Fixed(usize),
    /// `first + turn * period`, the turn of a loop being an s32 scalar.
    Turning { first: usize, period: usize, turn: Value },
}

/// What runs between layers: a tuple of arrays that a loop can carry.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    kind: Residual,
    values: Vec<Value>,
}

impl Stream {
    /// What the first layer reads, from embeddings `[rows, hidden]`.
    pub(crate) fn start(f: &Func, config: &ModelConfig, x: Value) -> Self {
        let values = match config.residual {
            Residual::Sum => vec![x],
            Residual::Blocks { block } => blocks::start(f, x, config.layers.len().div_ceil(block)),
            Residual::Streams { count, .. } => vec![streams::start(f, x, count)],
        };
        Self { kind: config.residual, values }
    }

    /// The values a loop carries.
    pub(crate) fn values(&self) -> &[Value] {
        &self.values
    }

    /// The same stream after a loop has carried its values.
    pub(crate) fn carried(&self, values: &[Value]) -> Self {
        Self { kind: self.kind, values: values.to_vec() }
    }

    /// One half of a layer: `block` takes what the half reads, `[rows, hidden]`, to its output.
    pub(crate) fn half(
        &mut self,
        layer: &Layer<'_>,
        number: Number,
        half: Half,
        block: impl FnOnce(Value) -> Value,
    ) {
        let f = layer.f;
        self.values = match self.kind {
            Residual::Sum => {
                let x = self.values[0];
                vec![f.add(x, block(x))]
            }
            Residual::Blocks { block: length } => {
                let bank = blocks::Bank::of(&self.values, length, number);
                bank.half(layer, half, block)
            }
            Residual::Streams { iterations, eps, .. } => {
                let x = self.values[0];
                let mix = streams::Mix::new(layer, half, x, iterations, eps);
                let y = block(mix.enter(f, x));
                vec![mix.leave(f, x, y)]
            }
        };
    }

    /// What a layer has made of the residual, for who looks inside: `[rows, channels]`, f32.
    pub(crate) fn inside(&self, f: &Func) -> Value {
        let x = f.convert(self.values[0], stablehlo::DType::F32);
        let rows = f.dim(x, 0);
        let channels = f.dims(x)[1..].iter().product();
        f.reshape(x, &[rows, channels])
    }

    /// The one vector a row that the final norm reads, `[rows, hidden]`.
    pub(crate) fn end(&self, f: &Func, config: &ModelConfig, weight: &dyn Fn(&str) -> Value) -> Value {
        match self.kind {
            Residual::Sum => self.values[0],
            Residual::Blocks { block } => {
                let layers = config.layers.len();
                let bank = blocks::Bank::of(&self.values, block, Number::Fixed(layers));
                bank.mix(f, [weight("output_mix.norm"), weight("output_mix.query")], config.rms_eps)
            }
            Residual::Streams { .. } => streams::end(f, self.values[0]),
        }
    }
}
