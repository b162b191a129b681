//! Each token through its own experts only: tokens are sorted by expert and cut into tiles of one expert each, and a loop
//! with as many turns as there are tiles runs them.

use model::Moe;
use stablehlo::{DType, Func, Update, Value};

use crate::layers::Layer;
use crate::layers::ffn::activate_halves;
use crate::layers::linear::linear;

/// Fewest and most rows of a tile.
const TILE_ROWS: (usize, usize) = (8, 64);

/// `x [rows, width]` through the experts that `weights [rows, experts]` gives a weight.
pub(super) fn run(layer: &Layer<'_>, shape: &Moe, x: Value, weights: Value) -> Value {
    let f = layer.f;
    let (weights, experts) = f.top_k(weights, shape.top_k as i64);
    let plan = Plan::new(f, shape.experts, experts);
    let routed = plan.run(layer, x);
    let routed = f.convert(f.take_rows(routed, plan.places), DType::F32);
    let weighed = f.mul(routed, f.broadcast_like(weights, routed, &[0, 1]));
    f.convert(f.sum(weighed, &[1]), f.dtype(x))
}

/// Which rows each tile holds.
struct Plan {
    /// Rows of a tile.
    tile: i64,
    /// Rows of all tiles there may be: one more than full for every expert.
    rows: i64,
    /// s32 `[rows]`: the token each row holds; rows that fill up a tile hold the first one.
    tokens: Value,
    /// s32 `[tokens, k]`: the row of each token's `k`th expert.
    places: Value,
    /// s32 `[experts]`: tiles up to and including each expert's.
    ends: Value,
}

impl Plan {
    /// For the chosen `experts [tokens, k]` out of `count`.
    fn new(f: &Func, count: usize, experts: Value) -> Self {
        let dims = f.dims(experts);
        let (k, pairs, count) = (dims[1], dims[0] * dims[1], count as i64);
        let per_expert = (pairs / count.max(1)) as usize;
        let tile = per_expert.next_power_of_two().clamp(TILE_ROWS.0, TILE_ROWS.1) as i64;
        let rows = (pairs / tile + count) * tile;

        let experts = f.reshape(experts, &[pairs]);
        let each = DType::S32.tensor([pairs, count]);
        let mine = f.eq(f.broadcast_in_dim(experts, &[pairs, count], &[0]), f.iota(each, 1));
        let sizes = f.sum(f.convert(mine, DType::S32), &[0]);
        let whole = f.splat_like(sizes, tile as f64);
        let tiles = f.div(f.add_scalar(sizes, (tile - 1) as f64), whole);
        let ends = f.cumsum(tiles, 0);
        // Sorted pair `r` of an expert stands as far into the expert's tiles as into its part of the sorted list.
        let shift = f.sub(f.mul(f.sub(ends, tiles), whole), f.sub(f.cumsum(sizes, 0), sizes));

        let counter = f.iota(DType::S32.tensor([pairs]), 0);
        let sorted = f.sort(&[experts, counter], 0, true, |f, a, b| f.lt(a[0], b[0]));
        let place = f.add(f.take_rows(shift, sorted[0]), counter);
        let token = f.div(sorted[1], f.splat_like(sorted[1], k as f64));
        let put = |into: i64, at: Value, what: Value| {
            f.scatter_rows(f.splat(0i32, &[into]), at, what, Update::Replace)
        };
        let places = f.reshape(put(pairs, sorted[1], place), &dims);
        Self { tile, rows, tokens: put(rows, place, token), places, ends }
    }

    /// Experts' outputs of all rows, `[rows, width]`; rows of tiles that do not exist are 0. One expert's matrices are
    /// taken at a time, and unpacked only then: `moe.in [experts, 2 * inner, width]`, `moe.out [experts, width, inner]`.
    fn run(&self, layer: &Layer<'_>, x: Value) -> Value {
        let f = layer.f;
        let (enter, leave) = (layer.matrix("moe.in"), layer.matrix("moe.out"));
        let activation = layer.config.activation;
        let all = f.full(f.dtype(x).tensor([self.rows, f.dim(x, 1)]), 0.0);
        let last = f.dim(self.ends, 0) - 1;
        let tiles = f.reshape(f.slice_axis(self.ends, 0, last, last + 1), &[]);
        let carried = f.while_loop(
            &[f.scalar(0i32), all],
            |f, carried| f.lt(carried[0], tiles),
            |f, carried| {
                let (tile, all) = (carried[0], carried[1]);
                let before = f.le(self.ends, f.broadcast_like(tile, self.ends, &[]));
                let expert = f.sum(f.convert(before, DType::S32), &[0]);
                let row = f.mul_scalar(tile, self.tile as f64);
                let rows = f.take_rows(x, f.dynamic_slice(self.tokens, &[row], &[self.tile]));
                let entered = linear(f, rows, enter.index(f, 0, expert));
                let left = linear(f, activate_halves(f, activation, entered), leave.index(f, 0, expert));
                let all = f.dynamic_update_slice(all, left, &[row, f.scalar(0i32)]);
                vec![f.add_scalar(tile, 1.0), all]
            },
        );
        carried[1]
    }
}
