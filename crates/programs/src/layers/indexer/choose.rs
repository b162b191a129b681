//! Scores of a sequence's pools, and the best of them.

use model::Indexer;
use stablehlo::{DType, Dot, Func, Precision, Value};

use crate::layers::mla::{Blocks, Pages, hide, keep_rows};

/// Pools that one pass of the scoring loop looks at.
const BLOCK_POOLS: i64 = 256;

/// What rows ask of the pools.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// `[rows..., heads, dim]`.
    pub(crate) queries: Value,
    /// f32 `[rows..., heads]`: how much a head's score counts, scaled by `(heads dim)^-1/2`.
    pub(crate) weights: Value,
}

impl Asked {
    /// The same rows under other leading dimensions.
    pub(crate) fn reshape(&self, f: &Func, lead: &[i64]) -> Self {
        let (queries, weights) = (f.dims(self.queries), f.dims(self.weights));
        let wide = |kept: &[i64]| [lead, kept].concat();
        Self {
            queries: f.reshape(self.queries, &wide(&queries[queries.len() - 2..])),
            weights: f.reshape(self.weights, &wide(&weights[weights.len() - 1..])),
        }
    }
}

/// What rows attend to: the first `min(seen / pool, k)` of the pools, and the tokens of the open pool that they see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen {
    /// s32 `[B, W, k]`: best first; of equals, the lowest first.
    pub(crate) pools: Value,
    /// s32 `[B, W]`: tokens that each row sees, itself included.
    pub(crate) seen: Value,
}

impl Chosen {
    /// A choice that says nothing yet, for one row of each of `batch` sequences in a cache with room for `pools`.
    pub(crate) fn none(f: &Func, shape: &Indexer, batch: i64, pools: i64) -> Self {
        Self { pools: f.splat(0i32, &[batch, 1, most(shape, pools)]), seen: f.splat(0i32, &[batch, 1]) }
    }

    pub(crate) fn values(&self) -> [Value; 2] {
        [self.pools, self.seen]
    }
}

/// The `k` of [`Chosen`] in a cache with room for `pools`.
fn most(shape: &Indexer, pools: i64) -> i64 {
    pools.min(shape.chosen as i64)
}

/// Chooses for `W` rows of each of several sequences, `asked [B, W, ...]`, which see `seen [B, W]` tokens. `keys` are the
/// pooled keys; the cost follows the tokens that are seen, but for the choice itself.
pub(crate) fn choose(f: &Func, keys: &Pages, asked: &Asked, seen: Value, shape: &Indexer) -> Chosen {
    let dims = f.dims(asked.queries);
    let complete = f.div(seen, f.splat_like(seen, shape.pool as f64));
    let cut = Blocks::new(f, keys, BLOCK_POOLS);
    let all = f.splat(f32::NEG_INFINITY, &[dims[0], dims[1], cut.rows * cut.count]);
    let scores = if cut.count == 1 {
        scores(f, &cut, asked, complete, f.scalar(0i32))
    } else {
        let needed = cut.needed(f, f.reduce_max(complete, &[0, 1]));
        let init = [f.scalar(0i32), all];
        let more = |f: &Func, carried: &[Value]| f.lt(carried[0], needed);
        let carried = f.while_loop(&init, more, |f, carried| {
            let part = scores(f, &cut, asked, complete, carried[0]);
            let start = f.mul_scalar(carried[0], cut.rows as f64);
            let all = f.dynamic_update_slice(carried[1], part, &[f.scalar(0i32), f.scalar(0i32), start]);
            vec![f.add_scalar(carried[0], 1.0), all]
        });
        carried[1]
    };
    let (_, pools) = f.top_k(scores, most(shape, keys.room(f)));
    Chosen { pools, seen }
}

/// Scores f32 `[B, W, pools]` of a block of pools, -inf of those that are not among a row's `complete` ones.
fn scores(f: &Func, cut: &Blocks<'_>, asked: &Asked, complete: Value, block: Value) -> Value {
    let dims = f.dims(asked.queries);
    let (batch, window, heads) = (dims[0], dims[1], dims[2]);
    let number = cut.numbers(f, block);
    let below = |count: Value, cells: &[i64]| {
        let lead: Vec<usize> = (0..f.dims(count).len()).collect();
        let number = f.broadcast_in_dim(number, cells, &[cells.len() - 1]);
        f.lt(number, f.broadcast_in_dim(count, cells, &lead))
    };
    let written = below(f.reduce_max(complete, &[1]), &[batch, cut.rows]);
    let keys = keep_rows(f, cut.read(f, block), written, 1);
    let queries = f.reshape(asked.queries, &[batch, window * heads, dims[3]]);
    // Products of two bf16 numbers are exact in f32; anything wider is multiplied as f32.
    let narrow = f.dtype(queries) == DType::BF16 && f.dtype(keys) == DType::BF16;
    let wide = |x: Value| if narrow { x } else { f.convert(x, DType::F32) };
    let how = Dot::contract([2], [2]).batch([0], [0]).precision(Precision::Highest).out(DType::F32);
    let met = f.dot_general(wide(queries), wide(keys), &how);
    let met = f.reshape(f.max(met, f.splat_like(met, 0.0)), &[batch, window, heads, cut.rows]);
    let weighed = f.mul(met, f.broadcast_like(asked.weights, met, &[0, 1, 2]));
    let scores = f.sum(weighed, &[2]);
    // A choice may order -0 before 0, but they tie.
    let none = f.splat_like(scores, 0.0);
    let scores = f.select(f.eq(scores, none), none, scores);
    hide(f, scores, below(complete, &[batch, window, cut.rows]))
}
