use model::{IndexShape, StateShape};
use stablehlo::{DType, Func, Gather, Scatter, Update, Value};

use crate::layers::mla::fill;
use crate::{Assembly, Error, Input, Mesh, Output, Program, ShapeLadder, StateArray};

/// Writes the latents of up to `tokens` consecutive tokens to their pages, and the pooled index keys of the pools that
/// they complete, where the model has them.
///
/// Inputs: `ChunkLatents`, `Start` (position of the first token), `Valid` (how many are real; the rest goes to the trash
/// page), `PageTable` `[P]`; with an indexer `ChunkKeys` `[latent_layers, tokens / pool + 1, index_dim]`, from the pool of
/// the first token on.
///
/// # Errors
/// A ladder that cannot be.
pub fn import_latents(
    state: &StateShape,
    ladder: &ShapeLadder,
    tokens: u32,
    mesh: &Mesh,
) -> Result<Program, Error> {
    ladder.check_for(state)?;
    let assembly = Assembly::new(&format!("import_latents_{tokens}"), mesh);
    let array = assembly.state(StateArray::Latents, state, ladder);
    let keys = state.index.map(|index| (index, assembly.state(StateArray::IndexKeys, state, ladder)));
    let chunk = [state.latent_layers, tokens as usize, state.latent_width];
    let chunk = assembly.input(Input::ChunkLatents, DType::F32, &chunk);
    let chunk_keys = state.index.map(|index| {
        let dims = [state.latent_layers, pools(index, tokens) as usize, index.dim];
        assembly.input(Input::ChunkKeys, DType::F32, &dims)
    });
    let span = Span::declare(&assembly, ladder, tokens);
    let f = assembly.f();
    let places = span.tokens(f);
    assembly.state_result(StateArray::Latents, write(f, array, places, fill(f, chunk, array)));
    if let (Some((index, array)), Some(chunk)) = (keys, chunk_keys) {
        let (places, _) = span.pools(f, index);
        assembly.state_result(StateArray::IndexKeys, write(f, array, places, chunk));
    }
    assembly.finish()
}

/// Reads the latents of up to `tokens` consecutive tokens from their pages: outputs `ChunkLatents`, and with an indexer
/// `ChunkKeys`.
///
/// Inputs as [`import_latents`]'s, without what is written. Latents beyond `Valid` mean nothing; pools that are not
/// complete before `Start + Valid` are 0.
///
/// # Errors
/// A ladder that cannot be.
pub fn export_latents(
    state: &StateShape,
    ladder: &ShapeLadder,
    tokens: u32,
    mesh: &Mesh,
) -> Result<Program, Error> {
    ladder.check_for(state)?;
    let assembly = Assembly::new(&format!("export_latents_{tokens}"), mesh);
    let array = assembly.read_state(StateArray::Latents, state, ladder);
    let keys = state.index.map(|index| (index, assembly.read_state(StateArray::IndexKeys, state, ladder)));
    let span = Span::declare(&assembly, ladder, tokens);
    let f = assembly.f();
    let read = |array, places| f.convert(f.gather(array, places, &over_layers(f, array)), DType::F32);
    let rows = read(array, span.tokens(f));
    assembly.output(Output::ChunkLatents, f.slice_axis(rows, 2, 0, state.latent_width as i64));
    if let Some((index, array)) = keys {
        let (places, closed) = span.pools(f, index);
        let keys = read(array, places);
        let closed = f.broadcast_like(closed, keys, &[1]);
        assembly.output(Output::ChunkKeys, f.select(closed, keys, f.splat_like(keys, 0.0)));
    }
    assembly.finish()
}

/// Pools that `tokens` consecutive tokens can have a part in completing.
fn pools(index: IndexShape, tokens: u32) -> i64 {
    i64::from(tokens) / index.pool as i64 + 1
}

/// Consecutive tokens of a sequence and the pages they are in.
struct Span {
    start: Value,
    valid: Value,
    table: Value,
    tokens: u32,
    page_tokens: u32,
    trash: u32,
}

impl Span {
    /// Declares the inputs that say so.
    fn declare(assembly: &Assembly, ladder: &ShapeLadder, tokens: u32) -> Self {
        let start = assembly.input(Input::Start, DType::S32, &[]);
        let valid = assembly.input(Input::Valid, DType::S32, &[]);
        let table = assembly.input(Input::PageTable, DType::S32, &[ladder.pages_per_sequence() as usize]);
        Self { start, valid, table, tokens, page_tokens: ladder.page_tokens, trash: ladder.trash_page() }
    }

    /// s32 `[tokens, 2]`: page and row in it of each token; the trash page for those that are not real.
    fn tokens(&self, f: &Func) -> Value {
        let offsets = f.iota(DType::S32.tensor([i64::from(self.tokens)]), 0);
        let positions = f.add(f.broadcast_like(self.start, offsets, &[]), offsets);
        let real = f.lt(offsets, f.broadcast_like(self.valid, offsets, &[]));
        self.places(f, positions, real, self.page_tokens)
    }

    /// The same of the pools from that of the first token on, and which of them are complete.
    fn pools(&self, f: &Func, index: IndexShape) -> (Value, Value) {
        let numbers = f.iota(DType::S32.tensor([pools(index, self.tokens)]), 0);
        let first = f.div(self.start, f.splat_like(self.start, index.pool as f64));
        let numbers = f.add(f.broadcast_like(first, numbers, &[]), numbers);
        let ends = f.mul_scalar(f.add_scalar(numbers, 1.0), index.pool as f64);
        let closed = f.le(ends, f.broadcast_like(f.add(self.start, self.valid), ends, &[]));
        (self.places(f, numbers, closed, self.page_tokens / index.pool as u32), closed)
    }

    fn places(&self, f: &Func, numbers: Value, real: Value, per_page: u32) -> Value {
        let per_page = f.splat_like(numbers, f64::from(per_page));
        let pages = f.take_rows(self.table, f.div(numbers, per_page));
        let pages = f.select(real, pages, f.splat_like(pages, f64::from(self.trash)));
        let column = |value| f.reshape(value, &[f.dim(numbers, 0), 1]);
        f.concatenate(&[column(pages), column(f.rem(numbers, per_page))], 1)
    }
}

/// `array` with `[layers, n, width]` put at places `[n, 2]`. Only the trash page is written twice, and nobody reads it.
fn write(f: &Func, array: Value, places: Value, new: Value) -> Value {
    let how = over_layers(f, array);
    let how = Scatter {
        update_window_dims: how.offset_dims,
        inserted_window_dims: how.collapsed_slice_dims,
        scatter_dims_to_operand_dims: how.start_index_map,
        index_vector_dim: how.index_vector_dim,
        ..Scatter::default()
    };
    f.scatter(array, places, f.convert(new, f.dtype(array)), &how, Update::Replace)
}

/// How `[n, 2]` places address `[layers, n, width]` in an array of pages: a place is a page and a row, and a window runs
/// over all layers and the whole width.
fn over_layers(f: &Func, array: Value) -> Gather {
    let dims = f.dims(array);
    Gather {
        offset_dims: vec![0, 2],
        collapsed_slice_dims: vec![1, 2],
        start_index_map: vec![1, 2],
        index_vector_dim: 1,
        slice_sizes: vec![dims[0], 1, 1, dims[3]],
        ..Gather::default()
    }
}
