//! The multi-token-prediction layer: from a hidden vector at a position and the token after it to the token after that.

use model::{Mtp, MtpReads};
use stablehlo::{Dot, Func, Value};

use crate::arrangement::{Build, attend, feed_forward};
use crate::layers::linear::dot;
use crate::layers::norm::rms_norm;
use crate::layers::{Layer, Phase, State};

/// The model's hidden vectors as the draft layer reads them, from those before the final norm `[rows, hidden]`.
pub(crate) fn reads(build: &Build<'_>, f: &Func, mtp: Mtp, x: Value) -> Value {
    match mtp.reads {
        MtpReads::BeforeNorm => x,
        MtpReads::AfterNorm => build.final_norm(f, x),
    }
}

/// What the draft layer's block reads, `[rows, hidden]`: the embedding of the next token (nothing at position 0) beside
/// the hidden vector at `positions [rows]`, each normed, through one matrix.
pub(crate) fn project(build: &Build<'_>, f: &Func, tokens: Value, hidden: Value, positions: Value) -> Value {
    let own = build.options.formats.draft.embedding;
    let table = if own { "mtp.embedding" } else { "embedding" };
    let embedded = build.look_up(f, table, tokens);
    let first = f.eq(positions, f.splat_like(positions, 0.0));
    let first = f.broadcast_like(first, embedded, &[0]);
    let embedded = f.select(first, f.splat_like(embedded, 0.0), embedded);
    let norm = |x: Value, name: &str| rms_norm(f, x, build.program.weight(name), build.config.rms_eps);
    let both = f.concatenate(&[norm(embedded, "mtp.embedding_norm"), norm(hidden, "mtp.hidden_norm")], 1);
    let matrix = build.program.matrix("mtp.project").float(f, build.dtype());
    dot(f, both, matrix, &Dot::contract([1], [1]))
}

/// Keeps what the draft layer's attention caches of rows `[rows, hidden]`.
pub(crate) fn cache(build: &Build<'_>, f: &Func, phase: &dyn Phase, x: Value, state: &mut State) {
    with_layer(build, f, |layer| {
        let normed = rms_norm(f, x, layer.weight("attention_norm"), layer.config.rms_eps);
        phase.cache(layer, normed, state);
    });
}

/// The block of rows `[rows, hidden]`: what it hands to itself for the next draft, and what the head reads.
pub(crate) fn block(
    build: &Build<'_>,
    f: &Func,
    mtp: Mtp,
    phase: &dyn Phase,
    x: Value,
    state: &mut State,
) -> [Value; 2] {
    let kind = build.config.draft_layer();
    with_layer(build, f, |layer| {
        let x = f.add(x, attend(layer, kind.attention, phase, x, state));
        let x = f.add(x, feed_forward(layer, kind.ffn, x));
        let normed = rms_norm(f, x, build.program.weight("mtp.output_norm"), layer.config.rms_eps);
        match mtp.reads {
            MtpReads::BeforeNorm => [x, normed],
            MtpReads::AfterNorm => [normed, normed],
        }
    })
}

fn with_layer<T>(build: &Build<'_>, f: &Func, run: impl FnOnce(&Layer<'_>) -> T) -> T {
    let weight = |_: &Func, role: &str| build.program.weight(&format!("mtp.{role}"));
    let matrix =
        |f: &Func, role: &str, at: &[Value]| build.program.matrix(&format!("mtp.{role}")).member(f, at);
    let index = f.scalar(build.config.state().latent_layers as i32 - 1);
    let _scope = f.scope("mtp");
    run(&build.layer(f, &weight, &matrix, index))
}

/// Logits of normed rows `[rows, hidden]` of the draft layer.
pub(crate) fn logits(build: &Build<'_>, f: &Func, normed: Value) -> Value {
    let head = if build.options.formats.draft.head { "mtp.head" } else { "head" };
    build.logits(f, normed, head)
}
