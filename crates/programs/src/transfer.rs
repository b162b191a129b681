//! Programs that move the state of one sequence between the state arrays and the host: what a hand-over sends and receives.
//!
//! Each touches the named slot or pages and leaves every other one as it was, bit for bit.

use model::StateShape;
use stablehlo::{DType, Func, Gather, Scatter, Update, Value};

use crate::{Assembly, Error, Input, Mesh, Output, Program, ShapeLadder, StateArray};

/// Writes the latents of up to `tokens` consecutive tokens to their pages.
///
/// Inputs: `ChunkLatents` `[latent_layers, tokens, latent_width]`, `Start` (position of the first one), `Valid` (how many
/// are real; the rest goes to the trash page), `PageTable` `[P]`.
///
/// # Errors
/// A ladder that cannot be.
pub fn import_latents(
    state: &StateShape,
    ladder: &ShapeLadder,
    tokens: u32,
    mesh: &Mesh,
) -> Result<Program, Error> {
    ladder.check()?;
    let assembly = Assembly::new(&format!("import_latents_{tokens}"), mesh);
    let array = assembly.state(StateArray::Latents, state, ladder);
    let chunk = [state.latent_layers, tokens as usize, state.latent_width];
    let chunk = assembly.input(Input::ChunkLatents, DType::F32, &chunk);
    let places = declare_places(&assembly, ladder, tokens);
    let f = assembly.f();
    // Only the trash page is written twice, and nobody reads it.
    let how = over_layers(f, array);
    let how = Scatter {
        update_window_dims: how.offset_dims,
        inserted_window_dims: how.collapsed_slice_dims,
        scatter_dims_to_operand_dims: how.start_index_map,
        index_vector_dim: how.index_vector_dim,
        ..Scatter::default()
    };
    let written = f.scatter(array, places, chunk, &how, Update::Replace);
    assembly.state_result(StateArray::Latents, written);
    assembly.finish()
}

/// Reads the latents of up to `tokens` consecutive tokens from their pages: output `ChunkLatents`.
///
/// Inputs as [`import_latents`]'s, without the latents; what lies beyond `Valid` means nothing.
///
/// # Errors
/// A ladder that cannot be.
pub fn export_latents(
    state: &StateShape,
    ladder: &ShapeLadder,
    tokens: u32,
    mesh: &Mesh,
) -> Result<Program, Error> {
    ladder.check()?;
    let assembly = Assembly::new(&format!("export_latents_{tokens}"), mesh);
    let array = assembly.read_state(StateArray::Latents, state, ladder);
    let places = declare_places(&assembly, ladder, tokens);
    let f = assembly.f();
    assembly.output(Output::ChunkLatents, f.gather(array, places, &over_layers(f, array)));
    assembly.finish()
}

/// Writes a slot's recurrent state and conv tails. Inputs: `Slot`, `SlotRecurrent`, `SlotTails`.
///
/// # Errors
/// A ladder that cannot be.
pub fn import_slot(state: &StateShape, ladder: &ShapeLadder, mesh: &Mesh) -> Result<Program, Error> {
    ladder.check()?;
    let assembly = Assembly::new("import_slot", mesh);
    let recurrent = assembly.state(StateArray::Recurrent, state, ladder);
    let tails = assembly.state(StateArray::Tails, state, ladder);
    let slot = assembly.input(Input::Slot, DType::S32, &[]);
    let own = [state.recurrent_layers, state.heads, state.key_dim, state.value_dim];
    let new_recurrent = assembly.input(Input::SlotRecurrent, DType::F32, &own);
    let own = [state.recurrent_layers, 3, state.tail_rows, state.tail_width];
    let new_tails = assembly.input(Input::SlotTails, DType::F32, &own);
    let f = assembly.f();
    let recurrent = f.dynamic_update_index(recurrent, new_recurrent, 1, slot);
    let tails = f.dynamic_update_index(tails, new_tails, 1, slot);
    assembly.state_result(StateArray::Recurrent, recurrent);
    assembly.state_result(StateArray::Tails, tails);
    assembly.finish()
}

/// Reads a slot's recurrent state and conv tails: outputs `SlotRecurrent`, `SlotTails`. Input: `Slot`.
///
/// # Errors
/// A ladder that cannot be.
pub fn export_slot(state: &StateShape, ladder: &ShapeLadder, mesh: &Mesh) -> Result<Program, Error> {
    ladder.check()?;
    let assembly = Assembly::new("export_slot", mesh);
    let recurrent = assembly.read_state(StateArray::Recurrent, state, ladder);
    let tails = assembly.read_state(StateArray::Tails, state, ladder);
    let slot = assembly.input(Input::Slot, DType::S32, &[]);
    let f = assembly.f();
    assembly.output(Output::SlotRecurrent, f.dynamic_index(recurrent, 1, slot));
    assembly.output(Output::SlotTails, f.dynamic_index(tails, 1, slot));
    assembly.finish()
}

/// Writes what a slot's draws read: prompt tokens, output counts, logit biases. Inputs: `Slot`, `SlotSeen`, `SlotCounts`,
/// `SlotBias`. Needed before the first draw of a sequence whose sampling
/// [asks for it](crate::sampling::Sampling::needs_slot_rows); the rows of others are never read.
///
/// # Errors
/// A ladder that cannot be.
pub fn set_sampling(state: &StateShape, ladder: &ShapeLadder, mesh: &Mesh) -> Result<Program, Error> {
    ladder.check()?;
    let assembly = Assembly::new("set_sampling", mesh);
    let rows = [
        (StateArray::PromptSeen, Input::SlotSeen, DType::Pred),
        (StateArray::OutputCounts, Input::SlotCounts, DType::S32),
        (StateArray::LogitBias, Input::SlotBias, DType::F32),
    ];
    let arrays = rows.map(|(what, _, _)| assembly.state(what, state, ladder));
    let slot = assembly.input(Input::Slot, DType::S32, &[]);
    let new = rows.map(|(_, input, dtype)| assembly.input(input, dtype, &[state.vocabulary]));
    for (((what, _, _), array), row) in rows.into_iter().zip(arrays).zip(new) {
        assembly.state_result(what, assembly.f().dynamic_update_index(array, row, 0, slot));
    }
    assembly.finish()
}

/// s32 `[tokens, 2]`: page and row in it of each token; the trash page for those that are not real. Declares the inputs
/// that say so.
fn declare_places(assembly: &Assembly, ladder: &ShapeLadder, tokens: u32) -> Value {
    let start = assembly.input(Input::Start, DType::S32, &[]);
    let valid = assembly.input(Input::Valid, DType::S32, &[]);
    let table = assembly.input(Input::PageTable, DType::S32, &[ladder.pages_per_sequence() as usize]);
    let f = assembly.f();
    let dims = [i64::from(tokens)];
    let spread = |scalar| f.broadcast_in_dim(scalar, &dims, &[]);
    let offsets = f.iota(DType::S32.tensor(dims), 0);
    let positions = f.add(spread(start), offsets);
    let page_tokens = f.splat_like(positions, f64::from(ladder.page_tokens));
    let pages = f.take_rows(table, f.div(positions, page_tokens));
    let trash = f.splat_like(pages, f64::from(ladder.trash_page()));
    let pages = f.select(f.lt(offsets, spread(valid)), pages, trash);
    let column = |value| f.reshape(value, &[i64::from(tokens), 1]);
    f.concatenate(&[column(pages), column(f.rem(positions, page_tokens))], 1)
}

/// How `[tokens, 2]` places address `[layers, tokens, width]` in the latents: a place is a page and a row, and a window
/// runs over all layers and the whole width.
fn over_layers(f: &Func, latents: Value) -> Gather {
    let dims = f.dims(latents);
    Gather {
        offset_dims: vec![0, 2],
        collapsed_slice_dims: vec![1, 2],
        start_index_map: vec![1, 2],
        index_vector_dim: 1,
        slice_sizes: vec![dims[0], 1, 1, dims[3]],
        ..Gather::default()
    }
}

#[cfg(test)]
mod tests;
