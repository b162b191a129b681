mod chunk;
mod line;
mod tiles;

use model::{ModelConfig, Residual, StateShape};
use stablehlo::{DType, Func, Value};

use crate::arrangement::{Build, share_of};
use crate::arrays::{Arrays, Drawing};
use crate::layers::State;
use crate::sampling::{self, REALS, WORDS};
use crate::{Assembly, Error, Input, Mesh, Options, Output, Program, ShapeLadder, StateArray, draft};
pub(crate) use chunk::Chunk;
pub use line::draft_line;

/// One sequence's next `chunk` tokens: extends its latents, moves its slot's recurrent state and conv tails to after the
/// last valid token, and draws from that token's logits.
///
/// Padding at the chunk's end changes nothing: its latents go to the trash page, its decay and beta are 0.
///
/// # Errors
/// When the ladder can not be built for.
pub fn prefill(
    config: &ModelConfig,
    ladder: &ShapeLadder,
    chunk: u32,
    options: &Options,
    mesh: &Mesh,
) -> Result<Program, Error> {
    ladder.check_for(&config.state())?;
    let program = Assembly::new(&format!("prefill_{chunk}"), mesh);
    let f = program.f();
    let rows = i64::from(chunk);
    let own = share_of(config, options, mesh)?;
    let shape = own.state();
    let mut build = Build::new(&program, config, &own, options);
    let arrays = Arrays::declare(&program, &shape, ladder);
    let tokens = program.input(Input::Tokens, DType::S32, &[chunk as usize]);
    let scalar = |what| program.input(what, DType::S32, &[]);
    let (valid, start, slot) = (scalar(Input::Valid), scalar(Input::Start), scalar(Input::Slot));
    let ends_prompt = scalar(Input::EndsPrompt);
    let next_token = config.mtp.map(|_| scalar(Input::NextToken));
    let table = program.input(Input::PageTable, DType::S32, &[ladder.pages_per_sequence() as usize]);
    let words = program.input(Input::SampleWords, DType::U32, &[1, WORDS]);
    let reals = program.input(Input::SampleReals, DType::F32, &[1, REALS]);

    let last = f.add_scalar(valid, -1.0);
    build.shown = options.emit_layers.then_some(last);
    let state = State::new(arrays.of_layers(), collected(&build, &shape, rows));
    let phase = Chunk::new(f, ladder, rows, [valid, start, slot], table);
    let (x, mut state) = build.layers(&phase, build.embed(tokens), state);
    let mut results = Vec::new();
    if let (Some(mtp), Some(next_token)) = (config.mtp, next_token) {
        let hidden = draft::reads(&build, f, mtp, x);
        // The last token's line takes the token that is about to be drawn; whoever goes on writes it.
        let known = f.sub(valid, ends_prompt);
        let phase = Chunk::new(f, ladder, rows, [known, start, slot], table);
        let shifted = shift(f, tokens, last, next_token);
        let drafted = draft::project(&build, f, shifted, hidden, phase.positions);
        draft::cache(&build, f, &phase, drafted, &mut state);
        let held = f.convert(f.dynamic_slice(hidden, &[last, f.scalar(0i32)], &[1, f.dim(x, 1)]), DType::F32);
        let held = f.reshape(held, &[1, 1, f.dim(x, 1)]);
        let at = [slot, f.scalar(0i32), f.scalar(0i32)];
        results.push((StateArray::Hidden, f.dynamic_update_slice(arrays.get(StateArray::Hidden), held, &at)));
    }

    let x = f.dynamic_slice(x, &[last, f.scalar(0i32)], &[1, f.dim(x, 1)]);
    let logits = build.logits(f, build.final_norm(f, x), "head");
    let positions = f.reshape(f.add(start, valid), &[1]);
    let slots = f.reshape(slot, &[1]);
    let drawing = Drawing { positions, slots, words, reals, arrays: &arrays };
    let drawn = sampling::emit(f, &drawing.rows(logits, arrays.get(StateArray::OutputCounts)));
    let counted = f.ne(ends_prompt, f.splat_like(ends_prompt, 0.0));
    let counted = f.select(f.reshape(counted, &[1]), drawn.tokens, f.splat_like(drawn.tokens, -1.0));
    let counts = sampling::count(f, arrays.get(StateArray::OutputCounts), slots, counted);

    results.push((StateArray::OutputCounts, counts));
    results.extend(state.arrays());
    arrays.give_back(&program, &results);
    program.drawn(&drawn);
    for (what, value) in state.collected() {
        program.output(*what, *value);
    }
    if options.emit_logits {
        program.output(Output::Logits, logits);
    }
    program.finish()
}

/// What the layers collect of a chunk for the caller, before any layer has run.
fn collected(build: &Build<'_>, shape: &StateShape, rows: i64) -> Vec<(Output, Value)> {
    let f = build.program.f();
    let layers = shape.latent_layers as i64;
    let mut all = vec![(Output::ChunkLatents, f.splat(0f32, &[layers, rows, shape.latent_width as i64]))];
    if let Some(index) = shape.index {
        let pools = rows / index.pool as i64 + 1;
        all.push((Output::ChunkKeys, f.splat(0f32, &[layers, pools, index.dim as i64])));
    }
    if build.shown.is_some() {
        let streams = match build.config.residual {
            Residual::Streams { count, .. } => count,
            Residual::Sum | Residual::Blocks { .. } => 1,
        };
        let dims = [build.config.layers.len() as i64, (streams * build.config.hidden) as i64];
        all.push((Output::LayerOutputs, f.splat(0f32, &dims)));
    }
    all
}

/// The token after each of `tokens [C]`; after the one at `last`, which the chunk does not hold, it is `next`.
fn shift(f: &Func, tokens: Value, last: Value, next: Value) -> Value {
    let rows = f.dim(tokens, 0);
    let moved = f.pad(f.slice_axis(tokens, 0, 1, rows), f.scalar(0i32), &[0], &[1], &[0]);
    let is_last = f.eq(f.iota(DType::S32.tensor([rows]), 0), f.broadcast_like(last, moved, &[]));
    f.select(is_last, f.broadcast_like(next, moved, &[]), moved)
}
