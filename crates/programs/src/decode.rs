use model::ModelConfig;
use stablehlo::{DType, Func, Update, Value};

use crate::layers::{Layer, Phase, State, conv, kda, mla};
use crate::sampling::{self, REALS, WORDS};
use crate::{Assembly, Error, Input, Mesh, Options, Output, Program, ShapeLadder, StateArray, arrangement};

/// One token of each of `batch` sequences: extends their latents, moves their recurrent states, draws the next tokens.
///
/// Rows never meet: what a row draws depends on its own slot and pages alone.
///
/// # Errors
/// When the ladder can not be built for.
pub fn decode(
    config: &ModelConfig,
    ladder: &ShapeLadder,
    batch: u32,
    options: &Options,
    mesh: &Mesh,
) -> Result<Program, Error> {
    ladder.check()?;
    let program = Assembly::new(&format!("decode_{batch}"), mesh);
    let f = program.f();
    let rows = batch as usize;
    let shape = config.state();
    arrangement::declare_weights(&program, config);
    let arrays = StateArray::ALL.map(|array| match array {
        StateArray::PromptSeen | StateArray::LogitBias => program.read_state(array, &shape, ladder),
        _ => program.state(array, &shape, ladder),
    });
    let [latents, recurrent, tails, counts, seen, bias] = arrays;
    let per_row = |what| program.input(what, DType::S32, &[rows]);
    let (tokens, positions, slots) =
        (per_row(Input::Tokens), per_row(Input::Positions), per_row(Input::Slots));
    let table = program.input(Input::PageTable, DType::S32, &[rows, ladder.pages_per_sequence() as usize]);
    let words = program.input(Input::SampleWords, DType::U32, &[rows, WORDS]);
    let reals = program.input(Input::SampleReals, DType::F32, &[rows, REALS]);

    let phase = Batch::new(f, ladder, positions, slots, table);
    let state = State { latents, recurrent, tails, chunk_latents: None };
    let (x, state) =
        arrangement::layers(&program, config, &phase, arrangement::embed(&program, tokens), state);
    let logits = arrangement::logits(&program, config, x);
    let next = f.add_scalar(positions, 1.0);
    let rows = sampling::Rows { logits, positions: next, slots, words, reals, counts, seen, bias };
    let drawn = sampling::emit(f, &rows);

    program.state_result(StateArray::Latents, state.latents);
    program.state_result(StateArray::Recurrent, state.recurrent);
    program.state_result(StateArray::Tails, state.tails);
    program.state_result(StateArray::OutputCounts, sampling::count(f, counts, slots, drawn.tokens));
    program.drawn(&drawn);
    if options.emit_logits {
        program.output(Output::Logits, logits);
    }
    program.finish()
}

/// One row of each of several sequences.
struct Batch {
    slots: Value,
    positions: Value,
    /// s32 `[B]`, `[B]`: where each row's latent is cached.
    places: [Value; 2],
    table: Value,
    trash: i32,
}

impl Batch {
    fn new(f: &Func, ladder: &ShapeLadder, positions: Value, slots: Value, table: Value) -> Self {
        let rows = f.dim(positions, 0);
        let page_tokens = f.splat_like(positions, f64::from(ladder.page_tokens));
        let entry = f.reshape(f.div(positions, page_tokens), &[rows, 1]);
        let row = f.iota(DType::S32.tensor([rows, 1]), 0);
        let page = f.take_at(table, f.concatenate(&[row, entry], 1));
        let places = [page, f.rem(positions, page_tokens)];
        Self { slots, positions, places, table, trash: ladder.trash_page() as i32 }
    }

    /// Addresses `[B, 1 + n]` of this layer's rows: its index, then a column of each of `columns`.
    fn at(&self, f: &Func, layer: Value, columns: &[Value]) -> Value {
        let shape = [f.dim(self.slots, 0), 1];
        let index = f.broadcast_in_dim(layer, &shape, &[]);
        let columns = columns.iter().map(|&column| f.reshape(column, &shape));
        f.concatenate(&std::iter::once(index).chain(columns).collect::<Vec<_>>(), 1)
    }
}

impl Phase for Batch {
    fn kda(&self, layer: &Layer<'_>, x: Value, state: &mut State) -> Value {
        let f = layer.f;
        let projected = kda::project(layer, x);
        let places = self.at(f, layer.index, &[self.slots]);
        let tail = f.take_at(state.tails, places);
        let dims = f.dims(tail);
        let (rows, before, width) = (dims[0], dims[2], dims[3]);
        let current = f.reshape(projected.qkv, &[rows, 3, 1, width]);
        let window = f.concatenate(&[tail, current], 2);
        state.tails =
            f.scatter_at(state.tails, places, f.slice_axis(window, 2, 1, before + 1), Update::Replace);
        let convolved = conv::over_batch(f, window, layer.weight("kda.conv"));
        let part = |at: i64| f.reshape(f.slice_axis(convolved, 1, at, at + 1), &[rows, width]);
        let qkv = kda::heads(layer, [part(0), part(1), part(2)]);
        let memory = f.take_at(state.recurrent, places);
        let (o, memory) = kda::step(f, qkv, projected.decay, projected.beta, memory);
        state.recurrent = f.scatter_at(state.recurrent, places, memory, Update::Replace);
        kda::output(layer, &projected, o)
    }

    fn mla(&self, layer: &Layer<'_>, x: Value, state: &mut State) -> Value {
        let f = layer.f;
        let (queries, latents) = mla::project(layer, x);
        let places = self.at(f, layer.index, &self.places);
        state.latents = f.scatter_at(state.latents, places, latents, Update::Replace);
        let pages = mla::Pages {
            latents: state.latents,
            layer: layer.index,
            table: self.table,
            trash: self.trash,
            kv_lora: layer.config.mla.kv_lora as i64,
        };
        let sums = mla::attend_batch(f, &pages, queries, self.positions);
        mla::output(layer, sums)
    }
}
