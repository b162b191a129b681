use std::ops::Range;

use model::{IndexShape, StateShape};
use stablehlo::{DType, Func, Value};

use crate::{Assembly, Error, Input, Mesh, Output, Program, ShapeLadder, StateArray};

/// Writes what a slot holds of a sequence of `n` tokens, for a step that has no window before it.
///
/// Inputs: `Slot`, `SlotRecurrent`, `SlotTails`; with an indexer `Start`, which is `n`, and `SlotIndexTail`; with a draft
/// layer `SlotHidden`. Row `j` of an index tail is of position `pool * floor(n / pool) + j`; the draft layer lacks the last
/// token's line, which whoever goes on writes, so its rows are those of `n - 1` tokens.
///
/// # Errors
/// A ladder that cannot be.
pub fn import_slot(state: &StateShape, ladder: &ShapeLadder, mesh: &Mesh) -> Result<Program, Error> {
    ladder.check_for(state)?;
    let assembly = Assembly::new("import_slot", mesh);
    let arrays = of(state).map(|array| (array, assembly.state(array, state, ladder)));
    let arrays: Vec<_> = arrays.collect();
    let slot = assembly.input(Input::Slot, DType::S32, &[]);
    let start = state.index.map(|_| assembly.input(Input::Start, DType::S32, &[]));
    let f = assembly.f();
    for (what, array) in arrays {
        let take = |input, dims: &[usize]| assembly.input(input, DType::F32, dims);
        let after = match (what, state.index, start) {
            (StateArray::Tails, ..) => {
                let new = take(Input::SlotTails, &tails(state));
                write(f, array, new, 0, slot, None)
            }
            (StateArray::IndexRing, Some(index), Some(n)) => {
                let new = take(Input::SlotIndexTail, &index_tail(state, index));
                let put = |array, open: Open| {
                    let new = f.slice_axis(new, 0, open.layers.start, open.layers.end);
                    write(f, array, new, open.layers.start, slot, Some(open.place(f, array, index)))
                };
                Open::of(f, state, n).into_iter().fold(array, put)
            }
            (StateArray::Hidden, ..) => {
                let width = state.hidden.unwrap_or(0);
                let new = f.reshape(take(Input::SlotHidden, &[width]), &[1, 1, width as i64]);
                let zero = f.scalar(0i32);
                f.dynamic_update_slice(array, new, &[slot, zero, zero])
            }
            _ => f.dynamic_update_index(array, take(Input::SlotRecurrent, &recurrent(state)), 1, slot),
        };
        assembly.state_result(what, after);
    }
    assembly.finish()
}

/// Reads what a slot holds of a sequence of `n` tokens: outputs `SlotRecurrent`, `SlotTails`, and where the model has them
/// `SlotIndexTail` and `SlotHidden`. Inputs: `Slot`, and with an indexer `Start`, which is `n`.
///
/// It is a sequence's state only where no window is pending: after a prompt's chunk or an import, and not after a decode
/// step with drafts.
///
/// # Errors
/// A ladder that cannot be.
pub fn export_slot(state: &StateShape, ladder: &ShapeLadder, mesh: &Mesh) -> Result<Program, Error> {
    ladder.check_for(state)?;
    let assembly = Assembly::new("export_slot", mesh);
    let arrays = of(state).map(|array| (array, assembly.read_state(array, state, ladder)));
    let arrays: Vec<_> = arrays.collect();
    let slot = assembly.input(Input::Slot, DType::S32, &[]);
    let start = state.index.map(|_| assembly.input(Input::Start, DType::S32, &[]));
    let f = assembly.f();
    for (what, array) in arrays {
        match (what, state.index, start) {
            (StateArray::Tails, ..) => {
                let own = f.dynamic_index(array, 1, slot);
                let own = f.slice_axis(own, 2, 0, state.tail_rows as i64);
                assembly.output(Output::SlotTails, own);
            }
            (StateArray::IndexRing, Some(index), Some(n)) => {
                let read = |open: Open| open.read(f, array, slot, index);
                let parts: Vec<_> = Open::of(f, state, n).into_iter().map(read).collect();
                assembly.output(Output::SlotIndexTail, f.concatenate(&parts, 0));
            }
            (StateArray::Hidden, ..) => {
                let own = f.dynamic_index(array, 0, slot);
                let own = f.reshape(f.slice_axis(own, 0, 0, 1), &[f.dim(own, 1)]);
                assembly.output(Output::SlotHidden, own);
            }
            _ => assembly.output(Output::SlotRecurrent, f.dynamic_index(array, 1, slot)),
        }
    }
    assembly.finish()
}

/// The arrays that a hand-over's slot is in.
fn of(state: &StateShape) -> impl Iterator<Item = StateArray> {
    let index = state.index.map(|_| StateArray::IndexRing);
    let hidden = state.hidden.map(|_| StateArray::Hidden);
    [StateArray::Recurrent, StateArray::Tails].into_iter().chain(index).chain(hidden)
}

fn recurrent(state: &StateShape) -> [usize; 4] {
    [state.recurrent_layers, state.heads, state.key_dim, state.value_dim]
}

fn tails(state: &StateShape) -> [usize; 4] {
    [state.recurrent_layers, 3, state.tail_rows, state.tail_width]
}

fn index_tail(state: &StateShape, index: IndexShape) -> [usize; 4] {
    [state.latent_layers, index.pool, 2, index.dim]
}

/// `array [layers, slots, ...]` with `new [some layers, ...]`, which may be shorter in its axes, put at the slot from layer
/// `first` on, and from `place` on along the first axis after the slots.
fn write(f: &Func, array: Value, new: Value, first: i64, slot: Value, place: Option<Value>) -> Value {
    let mut dims = f.dims(new);
    dims.insert(1, 1);
    let mut starts = vec![f.scalar(0i32); dims.len()];
    (starts[0], starts[1]) = (f.scalar(first as i32), slot);
    starts[2] = place.unwrap_or(starts[2]);
    f.dynamic_update_slice(array, f.reshape(new, &dims), &starts)
}

/// Layers whose open pools are those of equally many tokens.
struct Open {
    layers: Range<i64>,
    /// s32 scalar.
    tokens: Value,
}

impl Open {
    /// Of a sequence of `n` tokens.
    fn of(f: &Func, state: &StateShape, n: Value) -> Vec<Self> {
        let layers = state.latent_layers as i64;
        let own = layers - i64::from(state.hidden.is_some());
        let draft = Self { layers: own..layers, tokens: f.add_scalar(n, -1.0) };
        let all = [Self { layers: 0..own, tokens: n }, draft];
        all.into_iter().filter(|open| !open.layers.is_empty()).collect()
    }

    /// Tokens of the open pool.
    fn count(&self, f: &Func, index: IndexShape) -> Value {
        f.rem(self.tokens, f.scalar(index.pool as i32))
    }

    /// Place of the pool's first token in the ring, which holds whole pools.
    fn place(&self, f: &Func, rings: Value, index: IndexShape) -> Value {
        f.rem(f.sub(self.tokens, self.count(f, index)), f.scalar(f.dim(rings, 2) as i32))
    }

    /// The pool's rows, `[layers, pool, 2, dim]`, 0 beyond its tokens.
    fn read(&self, f: &Func, rings: Value, slot: Value, index: IndexShape) -> Value {
        let (layers, pool, dim) = (self.layers.end - self.layers.start, index.pool as i64, index.dim as i64);
        let zero = f.scalar(0i32);
        let first = f.scalar(self.layers.start as i32);
        let starts = [first, slot, self.place(f, rings, index), zero, zero];
        let rows = f.dynamic_slice(rings, &starts, &[layers, 1, pool, 2, dim]);
        let rows = f.reshape(rows, &[layers, pool, 2, dim]);
        let row = f.iota(DType::S32.tensor(f.dims(rows)), 1);
        let real = f.lt(row, f.broadcast_like(self.count(f, index), row, &[]));
        f.select(real, rows, f.splat_like(rows, 0.0))
    }
}
