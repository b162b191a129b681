//! The short causal convolution of query, key and value, one filter a channel.

use stablehlo::{Func, Value};

use super::norm::silu;

/// Filters `[3 * width, taps]` as `[taps, 3 * width]`.
fn by_tap(f: &Func, filters: Value) -> Value {
    f.transpose(filters, &[1, 0])
}

/// Rows of one sequence. `history [taps - 1 + C, 3 * width]` holds the inputs before the chunk and its own; row `t` of the
/// result is `silu(sum_j filter_j * history[t + j])`.
pub(crate) fn over_chunk(f: &Func, history: Value, filters: Value) -> Value {
    let taps = f.dim(filters, 1);
    let filters = by_tap(f, filters);
    let (rows, width) = (f.dim(history, 0) - taps + 1, f.dim(history, 1));
    let term = |tap: i64| {
        let filter = f.reshape(f.slice_axis(filters, 0, tap, tap + 1), &[width]);
        let input = f.slice_axis(history, 0, tap, tap + rows);
        f.mul(input, f.broadcast_like(filter, input, &[1]))
    };
    silu(f, (1..taps).fold(term(0), |sum, tap| f.add(sum, term(tap))))
}

/// One row of each of several sequences. `window [B, 3, taps, width]` holds each sequence's last inputs, the current one
/// last; the result is `[B, 3, width]`.
pub(crate) fn over_batch(f: &Func, window: Value, filters: Value) -> Value {
    let dims = f.dims(window);
    let (taps, width) = (dims[2], dims[3]);
    let filters = f.transpose(f.reshape(filters, &[3, width, taps]), &[0, 2, 1]);
    let term = |tap: i64| {
        let shape = [dims[0], 3, width];
        let input = f.reshape(f.slice_axis(window, 2, tap, tap + 1), &shape);
        let filter = f.reshape(f.slice_axis(filters, 1, tap, tap + 1), &[3, width]);
        f.mul(input, f.broadcast_like(filter, input, &[1, 2]))
    };
    silu(f, (1..taps).fold(term(0), |sum, tap| f.add(sum, term(tap))))
}
