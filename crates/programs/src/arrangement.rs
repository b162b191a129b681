//! The layers of a model in order: some inline, the repeated group as one loop over stacked weights.

use model::weights::{Float, weights};
use model::{Attention, Ffn, Fold, ModelConfig, Place};
use stablehlo::{DType, Func, Value};

use crate::layers::ffn::gated;
use crate::layers::moe::moe;
use crate::layers::norm::rms_norm;
use crate::layers::residual::{Half, Number, Stream};
use crate::layers::{Layer, Matrix, Phase, State};
use crate::mesh::Share;
use crate::{Assembly, Error, Input, Mesh, Options, Output};

/// A model being built into a program.
pub(crate) struct Build<'a> {
    pub(crate) program: &'a Assembly,
    /// The share of the model that one device runs.
    pub(crate) config: &'a ModelConfig,
    pub(crate) options: &'a Options,
    share: Share,
    /// s32 scalar: the row whose way through the layers is collected, if one is.
    pub(crate) shown: Option<Value>,
    fold: Fold,
}

impl<'a> Build<'a> {
    /// Declares every weight of `model`, of which `own` is one device's share.
    pub(crate) fn new(
        program: &'a Assembly,
        model: &ModelConfig,
        own: &'a ModelConfig,
        options: &'a Options,
    ) -> Self {
        for spec in weights(model, &options.formats) {
            program.declare_weight(&spec);
        }
        let mesh = program.mesh();
        let number = (!mesh.is_one()).then(|| program.input(Input::Share, DType::S32, &[]));
        let share = Share { mesh, number };
        Self { program, config: own, options, share, shown: None, fold: own.fold() }
    }

    /// The type activations are computed in.
    pub(crate) fn dtype(&self) -> DType {
        match self.options.formats.float {
            Float::F32 => DType::F32,
            Float::Bf16 => DType::BF16,
        }
    }

    /// Embeddings of token ids `[rows]`: `[rows, hidden]`.
    pub(crate) fn embed(&self, tokens: Value) -> Value {
        self.look_up(self.program.f(), "embedding", tokens)
    }

    /// Rows of a table by token id.
    pub(crate) fn look_up(&self, f: &Func, table: &str, tokens: Value) -> Value {
        self.share.look_up(f, self.program.weight(table), tokens)
    }

    /// The final norm of hidden vectors `[rows, hidden]`.
    pub(crate) fn final_norm(&self, f: &Func, x: Value) -> Value {
        rms_norm(f, x, self.program.weight("final_norm"), self.config.rms_eps)
    }

    /// Logits f32 `[rows, vocabulary]` of normed rows `[rows, hidden]`, by the output matrix of the given name.
    pub(crate) fn logits(&self, f: &Func, normed: Value, head: &str) -> Value {
        let _scope = f.scope("head");
        let head = self.program.weight(head);
        let how = stablehlo::Dot::contract([1], [1]).out(DType::F32);
        self.share.mesh.gather(f, f.dot_general(normed, head, &how), 1)
    }

    /// Takes embeddings `[rows, hidden]` and the state through all layers, to hidden vectors before the final norm.
    pub(crate) fn layers(&self, phase: &dyn Phase, x: Value, mut state: State) -> (Value, State) {
        let (f, fold) = (self.program.f(), &self.fold);
        let mut stream = Stream::start(f, self.config, x);
        for layer in 0..fold.prefix {
            self.inline(layer, phase, &mut stream, &mut state);
        }
        if fold.repeats > 0 {
            let length = stream.values().len();
            let init = [stream.values(), &state.values()].concat();
            let carried = f.repeat(fold.repeats as i32, &init, |f, turn, carried| {
                let mut stream = stream.carried(&carried[..length]);
                let mut state = state.carried(&carried[length..]);
                for member in 0..fold.period {
                    self.repeated(f, turn, member, phase, &mut stream, &mut state);
                }
                [stream.values(), &state.values()].concat()
            });
            stream = stream.carried(&carried[..length]);
            state = state.carried(&carried[length..]);
        }
        for layer in fold.suffix_layers() {
            self.inline(layer, phase, &mut stream, &mut state);
        }
        (stream.end(f, self.config, &|name| self.program.weight(name)), state)
    }

    /// A layer with a body of its own.
    fn inline(&self, layer: usize, phase: &dyn Phase, stream: &mut Stream, state: &mut State) {
        let (f, place) = (self.program.f(), Place::Inline(layer));
        let weight = |_: &Func, role: &str| self.program.weight(&format!("{place}.{role}"));
        let matrix = |f: &Func, role: &str, at: &[Value]| {
            self.program.matrix(&format!("{place}.{role}")).member(f, at)
        };
        let index = f.scalar(self.rank(layer) as i32);
        let _scope = f.scope(&place.to_string());
        let built = self.layer(f, &weight, &matrix, index);
        run(&built, self.config.layers[layer], Number::Fixed(layer), phase, stream, state);
        self.show(f, f.scalar(layer as i32), stream, state);
    }

    /// One member of the repeated group, in the loop's given turn.
    fn repeated(
        &self,
        f: &Func,
        turn: Value,
        member: usize,
        phase: &dyn Phase,
        stream: &mut Stream,
        state: &mut State,
    ) {
        let (fold, place) = (&self.fold, Place::Repeated(member));
        let first = fold.prefix + member;
        let kind = self.config.layers[first];
        let group = &self.config.layers[fold.prefix..fold.prefix + fold.period];
        let step = group.iter().filter(|other| other.attention == kind.attention).count();
        let index = f.add_scalar(f.mul_scalar(turn, step as f64), self.rank(first) as f64);
        let weight =
            |f: &Func, role: &str| f.dynamic_index(self.program.weight(&format!("{place}.{role}")), 0, turn);
        let matrix = |f: &Func, role: &str, at: &[Value]| {
            self.program.matrix(&format!("{place}.{role}")).member(f, &[&[turn], at].concat())
        };
        let _scope = f.scope(&place.to_string());
        let number = Number::Turning { first, period: fold.period, turn };
        run(&self.layer(f, &weight, &matrix, index), kind, number, phase, stream, state);
        let row = f.add_scalar(f.mul_scalar(turn, fold.period as f64), first as f64);
        self.show(f, row, stream, state);
    }

    /// Collects what a layer has made of the row that is shown.
    fn show(&self, f: &Func, layer: Value, stream: &Stream, state: &mut State) {
        if let Some(row) = self.shown {
            state.collect(f, Output::LayerOutputs, layer, f.dynamic_index(stream.inside(f), 0, row));
        }
    }

    pub(crate) fn layer<'b>(
        &'b self,
        f: &'b Func,
        weight: &'b dyn Fn(&Func, &str) -> Value,
        matrix: &'b dyn Fn(&Func, &str, &[Value]) -> Matrix,
        index: Value,
    ) -> Layer<'b> {
        Layer {
            f,
            config: self.config,
            formats: &self.options.formats,
            share: self.share,
            weight,
            matrix,
            index,
        }
    }

    /// How many earlier layers attend as this one does: its row in the state arrays.
    fn rank(&self, layer: usize) -> usize {
        let kind = self.config.layers[layer].attention;
        self.config.layers[..layer].iter().filter(|other| other.attention == kind).count()
    }
}

fn run(
    layer: &Layer<'_>,
    kind: model::Layer,
    number: Number,
    phase: &dyn Phase,
    stream: &mut Stream,
    state: &mut State,
) {
    stream.half(layer, number, Half::Attention, |x| attend(layer, kind.attention, phase, x, state));
    stream.half(layer, number, Half::Ffn, |x| feed_forward(layer, kind.ffn, x));
}

/// The first half of a layer, from what it reads, `[rows, hidden]`.
pub(crate) fn attend(
    layer: &Layer<'_>,
    kind: Attention,
    phase: &dyn Phase,
    x: Value,
    state: &mut State,
) -> Value {
    let normed = rms_norm(layer.f, x, layer.weight("attention_norm"), layer.config.rms_eps);
    match kind {
        Attention::Kda => phase.kda(layer, normed, state),
        Attention::Mla => phase.mla(layer, normed, state),
    }
}

/// The second half of a layer, from what it reads, `[rows, hidden]`.
pub(crate) fn feed_forward(layer: &Layer<'_>, kind: Ffn, x: Value) -> Value {
    let config = layer.config;
    let normed = rms_norm(layer.f, x, layer.weight("ffn_norm"), config.rms_eps);
    match (kind, &config.moe) {
        (Ffn::Moe, Some(shape)) => moe(layer, shape, normed),
        _ => layer.sum(gated(layer, normed, "dense.in", config.dense_inner, "dense.out")),
    }
}

/// The share of a model that one device of a mesh runs.
///
/// # Errors
/// When the model does not divide, or joins matrices that the mesh cuts apart.
pub(crate) fn share_of(config: &ModelConfig, options: &Options, mesh: &Mesh) -> Result<ModelConfig, Error> {
    if mesh.is_one() {
        return Ok(config.clone());
    }
    if options.formats.joined {
        return Err(Error::Mesh("matrices that read the same input are joined".to_owned()));
    }
    config.share(mesh.devices()).map_err(|error| Error::Mesh(error.to_string()))
}
