//! The layers of a model in order: some inline, the repeated group as one loop over stacked weights.

use model::weights::weights;
use model::{Attention, Ffn, ModelConfig, Place};
use stablehlo::{Func, Value};

use crate::Assembly;
use crate::layers::ffn::gated;
use crate::layers::moe::moe;
use crate::layers::norm::rms_norm;
use crate::layers::{Layer, Phase, State};

/// Declares every weight of the model.
pub(crate) fn declare_weights(program: &Assembly, config: &ModelConfig) {
    for spec in weights(config) {
        program.declare_weight(&spec);
    }
}

/// Embeddings of token ids `[rows]`: `[rows, hidden]`.
pub(crate) fn embed(program: &Assembly, tokens: Value) -> Value {
    program.f().take_rows(program.weight("embedding"), tokens)
}

/// Logits `[rows, vocabulary]` of the residual stream's last rows `[rows, hidden]`.
pub(crate) fn logits(program: &Assembly, config: &ModelConfig, x: Value) -> Value {
    let f = program.f();
    let _scope = f.scope("head");
    let normed = rms_norm(f, x, program.weight("final_norm"), config.rms_eps);
    f.linear(normed, program.weight("head"))
}

/// Takes the residual stream `[rows, hidden]` and the state through all layers.
pub(crate) fn layers(
    program: &Assembly,
    config: &ModelConfig,
    phase: &dyn Phase,
    mut x: Value,
    mut state: State,
) -> (Value, State) {
    let fold = config.fold();
    let f = program.f();
    let inline = |layer: usize, x: Value, state: &mut State| {
        let place = Place::Inline(layer);
        let weight = |_: &Func, role: &str| program.weight(&format!("{place}.{role}"));
        let index = f.scalar(rank(config, layer) as i32);
        let _scope = f.scope(&place.to_string());
        run(&Layer { f, config, weight: &weight, index }, config.layers[layer], phase, x, state)
    };
    for layer in 0..fold.prefix {
        x = inline(layer, x, &mut state);
    }
    if fold.repeats > 0 {
        let init: Vec<Value> = std::iter::once(x).chain(state.values()).collect();
        let carried = f.repeat(fold.repeats as i32, &init, |f, turn, carried| {
            let mut x = carried[0];
            let mut state = State::carried(&carried[1..]);
            for member in 0..fold.period {
                x = repeated(program, config, phase, f, (turn, member), x, &mut state);
            }
            std::iter::once(x).chain(state.values()).collect()
        });
        x = carried[0];
        state = State::carried(&carried[1..]);
    }
    for layer in fold.suffix_layers() {
        x = inline(layer, x, &mut state);
    }
    (x, state)
}

/// One member of the repeated group, in the loop's turn `at.0`.
fn repeated(
    program: &Assembly,
    config: &ModelConfig,
    phase: &dyn Phase,
    f: &Func,
    at: (Value, usize),
    x: Value,
    state: &mut State,
) -> Value {
    let (turn, member) = at;
    let fold = config.fold();
    let place = Place::Repeated(member);
    let layer = fold.prefix + member;
    let kind = config.layers[layer];
    let group = &config.layers[fold.prefix..fold.prefix + fold.period];
    let step = group.iter().filter(|other| other.attention == kind.attention).count();
    let index = f.add_scalar(f.mul_scalar(turn, step as f64), rank(config, layer) as f64);
    let weight = |f: &Func, role: &str| f.dynamic_index(program.weight(&format!("{place}.{role}")), 0, turn);
    let _scope = f.scope(&place.to_string());
    run(&Layer { f, config, weight: &weight, index }, kind, phase, x, state)
}

/// How many earlier layers attend as this one does: its row in the state arrays.
fn rank(config: &ModelConfig, layer: usize) -> usize {
    let kind = config.layers[layer].attention;
    config.layers[..layer].iter().filter(|other| other.attention == kind).count()
}

fn run(layer: &Layer<'_>, kind: model::Layer, phase: &dyn Phase, x: Value, state: &mut State) -> Value {
    let (f, config) = (layer.f, layer.config);
    let normed = rms_norm(f, x, layer.weight("attention_norm"), config.rms_eps);
    let attended = match kind.attention {
        Attention::Kda => phase.kda(layer, normed, state),
        Attention::Mla => phase.mla(layer, normed, state),
    };
    let x = f.add(x, attended);
    let normed = rms_norm(f, x, layer.weight("ffn_norm"), config.rms_eps);
    let mixed = match (kind.ffn, &config.moe) {
        (Ffn::Moe, Some(shape)) => moe(layer, shape, normed),
        _ => gated(layer, normed, "dense.in", "dense.out"),
    };
    f.add(x, mixed)
}
