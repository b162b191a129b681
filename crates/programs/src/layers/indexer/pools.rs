//! Pools that become complete, from the raw rows of their tokens.

use stablehlo::{DType, Func, Value};

/// Pooled keys f32 `[n, dim]` of pools' raw rows `[n, pool, 2, dim]`; `places [pool, dim]` is added to the scores.
pub(crate) fn pooled(f: &Func, places: Value, rows: Value) -> Value {
    let dims = f.dims(rows);
    let half = |at: i64| f.reshape(f.slice_axis(rows, 2, at, at + 1), &[dims[0], dims[1], dims[3]]);
    let (keys, scores) = (half(0), half(1));
    let scores = f.add(scores, f.broadcast_like(places, scores, &[1, 2]));
    let peak = f.broadcast_like(f.reduce_max(scores, &[1]), scores, &[0, 2]);
    let weights = f.exp(f.sub(scores, peak));
    f.div(f.sum(f.mul(weights, keys), &[1]), f.sum(weights, &[1]))
}

/// The pools that a chunk has tokens of.
pub(crate) struct Touched {
    /// f32 `[C / pool + 1, dim]`: pooled keys of those it completes, 0 of the others.
    pub(crate) keys: Value,
    /// s32 scalar: number of the first.
    pub(crate) first: Value,
    /// s32 scalar: how many it completes, which are the first ones.
    pub(crate) closed: Value,
}

/// The pools from that of position `start` on, of a chunk's raw rows `own [C, 2, dim]` and of those before them, which
/// are in the sequence's `ring [ring, 2, dim]`. The sequence is real up to position `limit`.
pub(crate) fn touched(
    f: &Func,
    places: Value,
    ring: Value,
    own: Value,
    start: Value,
    limit: Value,
) -> Touched {
    let (pool, dims) = (f.dim(places, 0), f.dims(own));
    let count = dims[0] / pool + 1;
    let by = f.scalar(pool as i32);
    let (first, inside) = (f.div(start, by), f.rem(start, by));
    // The last `pool` tokens, then the chunk's; pools begin with the open one's first token.
    let back = f.iota(DType::S32.tensor([pool]), 0);
    let place = f.add(back, f.broadcast_like(start, back, &[]));
    let place = wrapped(f, f.add_scalar(place, -(pool as f64)), f.dim(ring, 0));
    let before = f.take_rows(ring, place);
    let all = f.concatenate(&[before, own, f.splat(0f32, &[pool, 2, dims[2]])], 0);
    let zero = f.scalar(0i32);
    let rows = f.dynamic_slice(all, &[f.sub(by, inside), zero, zero], &[count * pool, 2, dims[2]]);
    let keys = pooled(f, places, f.reshape(rows, &[count, pool, 2, dims[2]]));
    let closed = f.sub(f.div(limit, by), first);
    let number = f.iota(DType::S32.tensor([count]), 0);
    let complete = f.lt(number, f.broadcast_like(closed, number, &[]));
    let shown = f.broadcast_like(complete, keys, &[0]);
    Touched { keys: f.select(shown, keys, f.splat_like(keys, 0.0)), first, closed }
}

/// The ring after a chunk: each place holds the latest of the positions before `limit` that are its own. `own [C, 2, dim]`
/// begins at `start`.
pub(crate) fn ring_after(f: &Func, ring: Value, own: Value, start: Value, limit: Value) -> Value {
    let length = f.dim(ring, 0);
    let place = f.iota(DType::S32.tensor([length]), 0);
    let last = f.add_scalar(f.broadcast_like(limit, place, &[]), -1.0);
    let back = wrapped(f, f.sub(last, place), length);
    let row = f.sub(f.sub(last, back), f.broadcast_like(start, place, &[]));
    let taken = f.take_rows(own, row);
    let new = f.ge(row, f.splat_like(row, 0.0));
    f.select(f.broadcast_like(new, ring, &[0]), taken, ring)
}

/// `position mod length` of positions from `-length` on.
pub(super) fn wrapped(f: &Func, position: Value, length: i64) -> Value {
    f.rem(f.add_scalar(position, length as f64), f.splat_like(position, length as f64))
}

/// Places in a ring of `length` of the `pool` tokens up to each of `positions [n]`: s32 `[n, pool]`.
pub(crate) fn places_up_to(f: &Func, positions: Value, pool: i64, length: i64) -> Value {
    let cells = DType::S32.tensor([f.dim(positions, 0), pool]);
    let back = f.iota(cells, 1);
    let position = f.add(f.broadcast_like(positions, back, &[0]), f.add_scalar(back, 1.0 - pool as f64));
    wrapped(f, position, length)
}
