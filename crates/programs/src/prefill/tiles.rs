//! A chunk's sparse attention, a tile of rows after another: what one row reads is its own, so a whole chunk's would not
//! fit.

use model::Indexer;
use stablehlo::{Func, Value};

use crate::layers::indexer::{Asked, choose};
use crate::layers::mla::{Pages, attend_chosen};

/// Rows of a tile.
const TILE: i64 = 32;

/// The rows of a chunk.
pub(super) struct Rows {
    /// `[C, H, latent_width]`.
    pub(super) queries: Value,
    /// `[C, ...]`.
    pub(super) asked: Asked,
    /// s32 `[C]`: tokens that each row sees.
    pub(super) seen: Value,
    /// s32 scalar: how many rows are real.
    pub(super) valid: Value,
}

/// Each row's attention to the pools that it chooses: `[C, H, kv_lora]`, 0 in tiles without a real row. `pages` are the
/// sequence's latents and pooled keys.
pub(super) fn attend(f: &Func, shape: &Indexer, pages: [&Pages; 2], kv_lora: i64, rows: &Rows) -> Value {
    let dims = f.dims(rows.queries);
    let tile = TILE.min(dims[0]);
    let length = (dims[0] + tile - 1) / tile * tile;
    let [latents, keys] = pages.map(|pages| {
        let table = f.reshape(pages.table, &[1, f.dim(pages.table, 0)]);
        Pages { table, ..*pages }
    });
    let filled = |x: Value| {
        let none = vec![0; f.dims(x).len()];
        let mut high = none.clone();
        high[0] = length - dims[0];
        f.pad(x, f.full(f.ty(x).with_dims([]), 1.0), &none, &high, &none)
    };
    let all = [rows.queries, rows.asked.queries, rows.asked.weights, rows.seen].map(filled);
    let tiles = f.div(f.add_scalar(rows.valid, (tile - 1) as f64), f.scalar(tile as i32));
    let init = [f.scalar(0i32), f.splat(0f32, &[length, dims[1], kv_lora])];
    let more = |f: &Func, carried: &[Value]| f.lt(carried[0], tiles);
    let carried = f.while_loop(&init, more, |f, carried| {
        let first = f.mul_scalar(carried[0], tile as f64);
        let starts = |rank: usize| {
            let mut starts = vec![f.scalar(0i32); rank];
            starts[0] = first;
            starts
        };
        let [queries, asked, weights, seen] = all.map(|x| {
            let mut sizes = f.dims(x);
            sizes[0] = tile;
            let part = f.dynamic_slice(x, &starts(sizes.len()), &sizes);
            sizes.insert(0, 1);
            f.reshape(part, &sizes)
        });
        let chosen = choose(f, &keys, &Asked { queries: asked, weights }, seen, shape);
        let sums = attend_chosen(f, &latents, kv_lora, shape.pool as i64, queries, &chosen);
        let sums = f.reshape(sums, &[tile, dims[1], kv_lora]);
        let all = f.dynamic_update_slice(carried[1], sums, &starts(3));
        vec![f.add_scalar(carried[0], 1.0), all]
    });
    f.slice_axis(carried[1], 0, 0, dims[0])
}
