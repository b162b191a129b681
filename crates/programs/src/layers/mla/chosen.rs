//! Attention over chosen pools of a sequence's cached tokens.

use stablehlo::{DType, Dot, Func, Gather, Value};

use super::pages::Pages;
use super::running::{attend_blocks, hide, keep_rows, products};
use crate::layers::indexer::Chosen;

/// Cached tokens of each row that one pass of the attention loop looks at.
const BLOCK_TOKENS: i64 = 128;

/// `W` rows of each of several sequences: queries `[B, W, H, latent_width]` see the tokens of their chosen pools of `pool`
/// tokens and of their open pool. Gives `[B, W, H, kv_lora]`.
///
/// A page holds whole pools, so a pool is one window of it.
pub(crate) fn attend_chosen(
    f: &Func,
    pages: &Pages,
    kv_lora: i64,
    pool: i64,
    queries: Value,
    chosen: &Chosen,
) -> Value {
    let dims = f.dims(queries);
    let (rows, heads) = (dims[0] * dims[1], dims[2]);
    let queries = f.reshape(queries, &[rows, heads, dims[3]]);
    let list = List::new(f, chosen, pool);
    let out = attend_blocks(f, list.count, list.needed, &[rows, heads, kv_lora], |f, block| {
        let (pools, visible) = list.block(f, chosen, block);
        let tokens = list.width * pool;
        let latents = f.reshape(read(f, pages, pools, pool), &[rows, tokens, dims[3]]);
        let visible = f.reshape(visible, &[rows, tokens]);
        let latents = keep_rows(f, latents, visible, 1);
        let scores = products(f, queries, latents, &Dot::contract([2], [2]).batch([0], [0]));
        (hide(f, scores, f.broadcast_like(visible, scores, &[0, 2])), latents)
    });
    f.reshape(out, &[dims[0], dims[1], heads, kv_lora])
}

/// The pools that rows attend to, the open one first, cut into blocks.
struct List {
    /// s32 `[B, W, count * width]`.
    pools: Value,
    /// s32 `[B, W]`: how many of them there are beside the open one.
    chosen: Value,
    pool: i64,
    /// Pools of a block. At least two: a row whose open pool is empty has chosen one.
    width: i64,
    /// Blocks of the longest list.
    count: i64,
    /// s32 scalar: blocks of the longest list that there is.
    needed: Value,
}

impl List {
    fn new(f: &Func, chosen: &Chosen, pool: i64) -> Self {
        let dims = f.dims(chosen.pools);
        let complete = f.div(chosen.seen, f.splat_like(chosen.seen, pool as f64));
        let held = f.min(complete, f.splat_like(complete, dims[2] as f64));
        let width = (BLOCK_TOKENS / pool).min(dims[2] + 1).max(2);
        let count = (dims[2] + width) / width;
        let open = f.reshape(complete, &[dims[0], dims[1], 1]);
        let high = [0, 0, count * width - dims[2] - 1];
        let pools = f.pad(f.concatenate(&[open, chosen.pools], 2), f.scalar(0i32), &[0; 3], &high, &[0; 3]);
        let longest = f.add_scalar(f.reduce_max(held, &[0, 1]), width as f64);
        let needed = f.div(longest, f.scalar(width as i32));
        Self { pools, chosen: held, pool, width, count, needed }
    }

    /// Pools of a block, s32 `[B, W, width]`, and which of their tokens a row sees, pred `[B, W, width, pool]`.
    fn block(&self, f: &Func, chosen: &Chosen, block: Value) -> (Value, Value) {
        let mut sizes = f.dims(self.pools);
        sizes[2] = self.width;
        let start = f.mul_scalar(block, self.width as f64);
        let pools = f.dynamic_slice(self.pools, &[f.scalar(0i32), f.scalar(0i32), start], &sizes);
        let place = f.iota(f.ty(pools), 2);
        let place = f.add(place, f.broadcast_like(start, place, &[]));
        let listed = f.le(place, f.broadcast_like(self.chosen, place, &[0, 1]));
        let pools = f.select(listed, pools, f.splat_like(pools, 0.0));
        sizes.push(self.pool);
        let wide = |x: Value| f.broadcast_in_dim(x, &sizes, &[0, 1, 2]);
        let first = wide(f.mul_scalar(pools, self.pool as f64));
        let tokens = f.add(first, f.iota(DType::S32.tensor(sizes.clone()), 3));
        let before = f.lt(tokens, f.broadcast_like(chosen.seen, tokens, &[0, 1]));
        (pools, f.and(wide(listed), before))
    }
}

/// Rows of pools s32 `[B, W, n]` of `pool` tokens each: `[B, W, n, pool, width]`.
fn read(f: &Func, pages: &Pages, pools: Value, pool: i64) -> Value {
    let array = f.dims(pages.array);
    let column = [f.dims(pools), vec![1]].concat();
    let token = f.mul_scalar(pools, pool as f64);
    let per_page = f.splat_like(token, array[2] as f64);
    let sequence = f.iota(f.ty(pools), 0);
    let entry = [sequence, f.div(token, per_page)].map(|x| f.reshape(x, &column));
    let page = f.take_at(pages.table, f.concatenate(&entry, 3));
    let layer = f.broadcast_in_dim(pages.layer, &column, &[]);
    let place = [page, f.rem(token, per_page)].map(|x| f.reshape(x, &column));
    let how = Gather {
        offset_dims: vec![3, 4],
        collapsed_slice_dims: vec![0, 1],
        start_index_map: vec![0, 1, 2],
        index_vector_dim: 3,
        slice_sizes: vec![1, 1, pool, array[3]],
        ..Gather::default()
    };
    f.gather(pages.array, f.concatenate(&[layer, place[0], place[1]], 3), &how)
}
