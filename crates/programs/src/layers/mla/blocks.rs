//! Attention over all of a sequence's cached tokens.

use stablehlo::{Dot, Func, Value};

use super::pages::{Blocks, Pages};
use super::running::{attend_blocks, hide, keep_rows, products};

/// Cached tokens that one pass of the attention loop looks at.
const BLOCK_TOKENS: i64 = 256;

/// One sequence: queries `[C, H, latent_width]` at `positions [C]` see cached tokens at or before their own position and
/// before `limit`, an s32 scalar. Gives `[C, H, kv_lora]`.
///
/// All heads share the latents, so a block is two plain products with `C * H` rows.
pub(crate) fn attend_chunk(
    f: &Func,
    pages: &Pages,
    kv_lora: i64,
    queries: Value,
    positions: Value,
    limit: Value,
) -> Value {
    let dims = f.dims(queries);
    let rows = [dims[0] * dims[1], dims[2]];
    let queries = f.reshape(queries, &rows);
    let cut = Blocks::new(f, pages, BLOCK_TOKENS);
    let out = attend_blocks(f, cut.count, cut.needed(f, limit), &[rows[0], kv_lora], |f, block| {
        let latents = cut.read(f, block);
        let tokens = cut.numbers(f, block);
        let cached = f.lt(tokens, f.broadcast_like(limit, tokens, &[]));
        let latents = keep_rows(f, latents, cached, 0);
        let scores = products(f, queries, latents, &Dot::contract([1], [1]));
        let cells = [dims[0], dims[1], cut.rows];
        let before =
            f.le(f.broadcast_in_dim(tokens, &cells, &[2]), f.broadcast_in_dim(positions, &cells, &[0]));
        let visible = f.and(before, f.broadcast_in_dim(cached, &cells, &[2]));
        let scores = hide(f, scores, f.reshape(visible, &[rows[0], cut.rows]));
        (scores, latents)
    });
    f.reshape(out, &[dims[0], dims[1], kv_lora])
}

/// A window of `W` rows of each of several sequences: queries `[B, W, H, latent_width]` at consecutive `positions [B, W]`
/// see their own sequence's cached tokens at or before their position. Gives `[B, W, H, kv_lora]`.
pub(crate) fn attend_batch(f: &Func, pages: &Pages, kv_lora: i64, queries: Value, positions: Value) -> Value {
    let dims = f.dims(queries);
    let (window, heads) = (dims[1], dims[2]);
    let rows = [dims[0], window * heads, dims[3]];
    let queries = f.reshape(queries, &rows);
    let last = f.reshape(f.slice_axis(positions, 1, window - 1, window), &[dims[0]]);
    let cut = Blocks::new(f, pages, BLOCK_TOKENS);
    let limit = f.add_scalar(f.reduce_max(last, &[0]), 1.0);
    let wide = [rows[0], rows[1], kv_lora];
    let sums = attend_blocks(f, cut.count, cut.needed(f, limit), &wide, |f, block| {
        let latents = cut.read(f, block);
        let tokens = cut.numbers(f, block);
        let seen_by = |rows: Value, cells: &[i64]| {
            let lead: Vec<usize> = (0..f.dims(rows).len()).collect();
            let tokens = f.broadcast_in_dim(tokens, cells, &[cells.len() - 1]);
            f.le(tokens, f.broadcast_in_dim(rows, cells, &lead))
        };
        let latents = keep_rows(f, latents, seen_by(last, &[dims[0], cut.rows]), 1);
        let scores = products(f, queries, latents, &Dot::contract([2], [2]).batch([0], [0]));
        let visible = seen_by(positions, &[dims[0], window, cut.rows]);
        let cells = [dims[0], window, heads, cut.rows];
        let visible = f.broadcast_in_dim(visible, &cells, &[0, 1, 3]);
        (hide(f, scores, f.reshape(visible, &[dims[0], rows[1], cut.rows])), latents)
    });
    f.reshape(sums, &[dims[0], window, heads, kv_lora])
}
