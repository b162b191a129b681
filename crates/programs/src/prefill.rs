use model::ModelConfig;
use stablehlo::{DType, Func, Update, Value};

use crate::layers::{Layer, Phase, State, conv, kda, mla};
use crate::sampling::{self, REALS, WORDS};
use crate::{Assembly, Error, Input, Mesh, Options, Output, Program, ShapeLadder, StateArray, arrangement};

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
    ladder.check()?;
    let program = Assembly::new(&format!("prefill_{chunk}"), mesh);
    let f = program.f();
    let rows = i64::from(chunk);
    let shape = config.state();
    arrangement::declare_weights(&program, config);
    let arrays = StateArray::ALL.map(|array| match array {
        StateArray::PromptSeen | StateArray::LogitBias => program.read_state(array, &shape, ladder),
        _ => program.state(array, &shape, ladder),
    });
    let [latents, recurrent, tails, counts, seen, bias] = arrays;
    let tokens = program.input(Input::Tokens, DType::S32, &[chunk as usize]);
    let scalar = |what| program.input(what, DType::S32, &[]);
    let (valid, start, slot) = (scalar(Input::Valid), scalar(Input::Start), scalar(Input::Slot));
    let ends_prompt = scalar(Input::EndsPrompt);
    let table = program.input(Input::PageTable, DType::S32, &[ladder.pages_per_sequence() as usize]);
    let words = program.input(Input::SampleWords, DType::U32, &[1, WORDS]);
    let reals = program.input(Input::SampleReals, DType::F32, &[1, REALS]);

    let phase = Chunk::new(f, ladder, rows, [valid, start, slot], table);
    let given_back = f.splat(0f32, &[shape.latent_layers as i64, rows, shape.latent_width as i64]);
    let state = State { latents, recurrent, tails, chunk_latents: Some(given_back) };
    let (x, state) =
        arrangement::layers(&program, config, &phase, arrangement::embed(&program, tokens), state);

    let last = f.add_scalar(valid, -1.0);
    let last = f.dynamic_slice(x, &[last, f.scalar(0i32)], &[1, f.dim(x, 1)]);
    let logits = arrangement::logits(&program, config, last);
    let positions = f.reshape(f.add(start, valid), &[1]);
    let slots = f.reshape(slot, &[1]);
    let rows = sampling::Rows { logits, positions, slots, words, reals, counts, seen, bias };
    let drawn = sampling::emit(f, &rows);
    let counted = f.ne(ends_prompt, f.splat_like(ends_prompt, 0.0));
    let counted = f.select(f.reshape(counted, &[1]), drawn.tokens, f.splat_like(drawn.tokens, -1.0));

    program.state_result(StateArray::Latents, state.latents);
    program.state_result(StateArray::Recurrent, state.recurrent);
    program.state_result(StateArray::Tails, state.tails);
    program.state_result(StateArray::OutputCounts, sampling::count(f, counts, slots, counted));
    program.drawn(&drawn);
    if let Some(latents) = state.chunk_latents {
        program.output(Output::ChunkLatents, latents);
    }
    if options.emit_logits {
        program.output(Output::Logits, logits);
    }
    program.finish()
}

/// The rows of one sequence's chunk.
struct Chunk {
    /// s32 scalar: real tokens of the chunk.
    valid: Value,
    /// s32 scalar: position after the last real token.
    limit: Value,
    slot: Value,
    /// pred scalar: the sequence begins here, so the slot's old state is another's.
    begins: Value,
    /// pred `[C]`: the row is a real token.
    real: Value,
    /// s32 `[C]`.
    positions: Value,
    /// s32 `[C]`, `[C]`: where each row's latent is cached.
    places: [Value; 2],
    table: Value,
    trash: i32,
}

impl Chunk {
    fn new(f: &Func, ladder: &ShapeLadder, rows: i64, scalars: [Value; 3], table: Value) -> Self {
        let [valid, start, slot] = scalars;
        let row = f.iota(DType::S32.tensor([rows]), 0);
        let positions = f.add(row, f.broadcast_like(start, row, &[]));
        let real = f.lt(row, f.broadcast_like(valid, row, &[]));
        let page_tokens = f.splat_like(row, f64::from(ladder.page_tokens));
        let trash = ladder.trash_page() as i32;
        let page = f.take_rows(table, f.div(positions, page_tokens));
        let page = f.select(real, page, f.splat_like(page, f64::from(trash)));
        Self {
            valid,
            limit: f.add(start, valid),
            slot,
            begins: f.eq(start, f.scalar(0i32)),
            real,
            positions,
            places: [page, f.rem(positions, page_tokens)],
            table,
            trash,
        }
    }

    /// A value at this layer's row and the sequence's slot, 0 where the sequence begins.
    fn held(&self, f: &Func, array: Value, layer: Value) -> Value {
        let mut sizes = f.dims(array);
        (sizes[0], sizes[1]) = (1, 1);
        let part = f.dynamic_slice(array, &self.starts(f, array, layer), &sizes);
        let part = f.reshape(part, &sizes[2..]);
        let begins = f.broadcast_like(self.begins, part, &[]);
        f.select(begins, f.splat_like(part, 0.0), part)
    }

    fn hold(&self, f: &Func, array: Value, layer: Value, part: Value) -> Value {
        let mut dims = vec![1, 1];
        dims.extend(f.dims(part));
        f.dynamic_update_slice(array, f.reshape(part, &dims), &self.starts(f, array, layer))
    }

    fn starts(&self, f: &Func, array: Value, layer: Value) -> Vec<Value> {
        let mut starts = vec![layer, self.slot];
        starts.resize(f.dims(array).len(), f.scalar(0i32));
        starts
    }

    /// 0 in the rows of padding.
    fn only_real(&self, f: &Func, x: Value) -> Value {
        let real = f.broadcast_like(self.real, x, &[0]);
        f.select(real, x, f.splat_like(x, 0.0))
    }
}

impl Phase for Chunk {
    fn kda(&self, layer: &Layer<'_>, x: Value, state: &mut State) -> Value {
        let f = layer.f;
        let projected = kda::project(layer, x);
        let tail = self.held(f, state.tails, layer.index);
        let dims = f.dims(tail);
        let (before, width) = (dims[1], dims[2]);
        let tail = f.reshape(f.transpose(tail, &[1, 0, 2]), &[before, 3 * width]);
        let history = f.concatenate(&[tail, projected.qkv], 0);
        let convolved = conv::over_chunk(f, history, layer.weight("kda.conv"));
        let parts = f.split(convolved, 1, &[width, width, width]);
        let qkv = kda::heads(layer, [parts[0], parts[1], parts[2]]);
        let (decay, beta) = (self.only_real(f, projected.decay), self.only_real(f, projected.beta));
        let memory = self.held(f, state.recurrent, layer.index);
        let (o, memory) = kda::chunked(f, qkv, decay, beta, memory);
        state.recurrent = self.hold(f, state.recurrent, layer.index, memory);

        let tail = f.dynamic_slice(history, &[self.valid, f.scalar(0i32)], &[before, 3 * width]);
        let tail = f.transpose(f.reshape(tail, &[before, 3, width]), &[1, 0, 2]);
        state.tails = self.hold(f, state.tails, layer.index, tail);
        kda::output(layer, &projected, o)
    }

    fn mla(&self, layer: &Layer<'_>, x: Value, state: &mut State) -> Value {
        let f = layer.f;
        let (queries, latents) = mla::project(layer, x);
        let rows = f.dim(latents, 0);
        let column = |value: Value| f.reshape(value, &[rows, 1]);
        let index = f.broadcast_in_dim(layer.index, &[rows, 1], &[]);
        let places = f.concatenate(&[index, column(self.places[0]), column(self.places[1])], 1);
        state.latents = f.scatter_at(state.latents, places, latents, Update::Replace);
        state.chunk_latents =
            state.chunk_latents.map(|all| f.dynamic_update_index(all, latents, 0, layer.index));
        let pages = mla::Pages {
            latents: state.latents,
            layer: layer.index,
            table: self.table,
            trash: self.trash,
            kv_lora: layer.config.mla.kv_lora as i64,
        };
        let sums = mla::attend_chunk(f, &pages, queries, self.positions, self.limit);
        mla::output(layer, sums)
    }
}
