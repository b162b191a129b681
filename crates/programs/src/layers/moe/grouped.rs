//! Each token through its own experts only: tokens are sorted by expert and cut into tiles of one expert each, and a loop
//! with as many turns as there are tiles runs them.

use model::Moe;
use stablehlo::{DType, Func, Reducer, Update, Value};

use crate::layers::Layer;
use crate::layers::ffn::activate_halves;
use crate::layers::linear::linear;

/// Fewest and most rows of a tile.
const TILE_ROWS: (i64, i64) = (8, 256);

/// `x [rows, width]` through the experts of this device that `weights [rows, experts]` gives a weight.
pub(super) fn run(layer: &Layer<'_>, shape: &Moe, x: Value, weights: Value) -> Value {
    let f = layer.f;
    let held = f.dim(weights, 1);
    let most = (shape.top_k as i64).min(held);
    let (weights, experts) = f.top_k(weights, most);
    let expected = f.dim(x, 0) * shape.top_k as i64 / shape.experts as i64;
    let plan = Plan::new(f, held, expected, experts, weights);
    f.convert(plan.run(layer, x), f.dtype(x))
}

/// Which rows each tile holds.
struct Plan {
    /// Rows of a tile.
    tile: i64,
    /// s32 `[rows]`: the token each row holds, over all tiles there may be: one more than full for every expert. Rows that
    /// fill up a tile hold the first one, without weight.
    tokens: Value,
    /// f32 `[rows]`: how much of the row's output its token gets.
    weights: Value,
    /// s32 `[experts]`: tiles up to and including each expert's.
    ends: Value,
}

impl Plan {
    /// For the chosen `experts [tokens, k]` out of `count`, of which each is `expected` to get so many tokens. Those with no
    /// weight, which other devices run, sort behind all and get no tile.
    fn new(f: &Func, count: i64, expected: i64, experts: Value, weights: Value) -> Self {
        let dims = f.dims(experts);
        let (k, pairs) = (dims[1], dims[0] * dims[1]);
        let tile = (expected.max(1) as u64).next_power_of_two() as i64;
        let tile = tile.clamp(TILE_ROWS.0, TILE_ROWS.1);
        let rows = (pairs / tile + count) * tile;

        let weights = f.reshape(weights, &[pairs]);
        let experts = f.reshape(experts, &[pairs]);
        let weighs = f.gt(weights, f.splat_like(weights, 0.0));
        let experts = f.select(weighs, experts, f.splat_like(experts, count as f64));
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
        let has_tile = f.lt(sorted[0], f.splat_like(sorted[0], count as f64));
        // Out of range is nowhere.
        let place = f.select(has_tile, place, f.splat_like(place, rows as f64));
        let token = f.div(sorted[1], f.splat_like(sorted[1], k as f64));
        let put = |into: Value, what: Value| f.scatter_rows(into, place, what, Update::Replace);
        let tokens = put(f.splat(0i32, &[rows]), token);
        let weights = put(f.splat(0f32, &[rows]), f.take_rows(weights, sorted[1]));
        Self { tile, tokens, weights, ends }
    }

    /// The weighed sum of the experts' outputs for every token, f32 `[tokens, width]`. One expert's matrices are taken at a
    /// time, and unpacked only then: `moe.in [experts, 2 * inner, width]`, `moe.out [experts, width, inner]`.
    fn run(&self, layer: &Layer<'_>, x: Value) -> Value {
        let f = layer.f;
        let activation = layer.config.activation;
        let sums = f.splat(0f32, &f.dims(x));
        let last = f.dim(self.ends, 0) - 1;
        let tiles = f.reshape(f.slice_axis(self.ends, 0, last, last + 1), &[]);
        let carried = f.while_loop(
            &[f.scalar(0i32), sums],
            |f, carried| f.lt(carried[0], tiles),
            |f, carried| {
                let (tile, sums) = (carried[0], carried[1]);
                let before = f.le(self.ends, f.broadcast_like(tile, self.ends, &[]));
                let expert = f.sum(f.convert(before, DType::S32), &[0]);
                let row = f.mul_scalar(tile, self.tile as f64);
                let tokens = f.dynamic_slice(self.tokens, &[row], &[self.tile]);
                let weights = f.dynamic_slice(self.weights, &[row], &[self.tile]);
                let entered = linear(f, f.take_rows(x, tokens), layer.expert(f, "moe.in", expert));
                let left =
                    linear(f, activate_halves(f, activation, entered), layer.expert(f, "moe.out", expert));
                let left = f.convert(left, DType::F32);
                let left = f.mul(left, f.broadcast_like(weights, left, &[0]));
                let sums = f.scatter_rows(sums, tokens, left, Update::Combine(Reducer::Add));
                vec![f.add_scalar(tile, 1.0), sums]
            },
        );
        carried[1]
    }
}
