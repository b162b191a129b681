//! The short causal convolution of query, key and value, one filter a channel.

use stablehlo::{Func, Value};

use super::norm::silu;

/// Filters `[3, width, taps]` as `[taps, 3 * width]`.
fn by_tap(f: &Func, filters: Value) -> Value {
    let dims = f.dims(filters);
    f.transpose(f.reshape(filters, &[dims[0] * dims[1], dims[2]]), &[1, 0])
}

/// Rows of one sequence. `history [taps - 1 + C, 3 * width]` holds the inputs before the chunk and its own; row `t` of the
/// result is `silu(sum_j filter_j * history[t + j])`.
pub(crate) fn over_chunk(f: &Func, history: Value, filters: Value) -> Value {
    let taps = f.dim(filters, 2);
    let filters = by_tap(f, filters);
    let (rows, width) = (f.dim(history, 0) - taps + 1, f.dim(history, 1));
    let term = |tap: i64| {
        let filter = f.reshape(f.slice_axis(filters, 0, tap, tap + 1), &[width]);
        let input = f.slice_axis(history, 0, tap, tap + rows);
        f.mul(input, f.broadcast_like(filter, input, &[1]))
    };
    silu(f, (1..taps).fold(term(0), |sum, tap| f.add(sum, term(tap))))
}

/// `T` rows of each of several sequences: `history [B, 3, taps - 1 + T, width]` holds the inputs before the rows and their
/// own; the result is `[B, T, 3, width]`.
pub(crate) fn over_batch(f: &Func, history: Value, filters: Value) -> Value {
    let dims = f.dims(history);
    let taps = f.dim(filters, 2);
    let rows = dims[2] - taps + 1;
    let term = |tap: i64| {
        let input = f.slice_axis(history, 2, tap, tap + rows);
        let filter = f.reshape(f.slice_axis(filters, 2, tap, tap + 1), &[3, dims[3]]);
        f.mul(input, f.broadcast_like(filter, input, &[1, 3]))
    };
    let sum = (1..taps).fold(term(0), |sum, tap| f.add(sum, term(tap)));
    f.transpose(silu(f, sum), &[0, 2, 1, 3])
}
