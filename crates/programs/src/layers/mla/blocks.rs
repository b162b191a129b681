use stablehlo::{DType, Dot, Func, Value};

/// Cached tokens that one pass of the attention loop looks at.
const BLOCK_TOKENS: i64 = 256;

/// One layer's share of the paged cache.
pub(crate) struct Pages {
    /// f32 `[latent_layers, pages + 1, page_tokens, latent_width]`.
    pub(crate) latents: Value,
    /// s32 scalar: the layer's row.
    pub(crate) layer: Value,
    /// s32 `[P]` or `[B, P]`.
    pub(crate) table: Value,
    /// The page that stands for none.
    pub(crate) trash: i32,
    /// Channels of a latent that are summed: its compression.
    pub(crate) kv_lora: i64,
}

/// One sequence: queries `[C, H, latent_width]` at `positions [C]` see cached tokens at or before their own position and
/// before `limit`, an s32 scalar. Gives `[C, H, kv_lora]`.
///
/// All heads share the latents, so a block is two plain products with `C * H` rows.
pub(crate) fn attend_chunk(f: &Func, pages: &Pages, queries: Value, positions: Value, limit: Value) -> Value {
    let dims = f.dims(queries);
    let rows = [dims[0] * dims[1], dims[2]];
    let queries = f.reshape(queries, &rows);
    let cut = Blocks::new(f, pages);
    let out = cut.run(f, limit, &[rows[0]], pages.kv_lora, |f, block| {
        let latents = cut.latents(f, pages, block);
        let tokens = cut.positions(f, block);
        let cached = f.lt(tokens, f.broadcast_like(limit, tokens, &[]));
        let latents = keep_rows(f, latents, cached, 0);
        let scores = f.linear(queries, latents);
        let cells = [dims[0], dims[1], cut.tokens];
        let before =
            f.le(f.broadcast_in_dim(tokens, &cells, &[2]), f.broadcast_in_dim(positions, &cells, &[0]));
        let visible = f.and(before, f.broadcast_in_dim(cached, &cells, &[2]));
        let scores = hide(f, scores, f.reshape(visible, &[rows[0], cut.tokens]));
        (scores, latents)
    });
    f.reshape(out, &[dims[0], dims[1], pages.kv_lora])
}

/// One row of each of several sequences: query `[B, H, latent_width]` at `positions [B]` sees its own sequence's cached
/// tokens at or before its position. Gives `[B, H, kv_lora]`.
pub(crate) fn attend_batch(f: &Func, pages: &Pages, queries: Value, positions: Value) -> Value {
    let dims = f.dims(queries);
    let cut = Blocks::new(f, pages);
    let limit = f.add_scalar(f.reduce_max(positions, &[0]), 1.0);
    cut.run(f, limit, &[dims[0], dims[1]], pages.kv_lora, |f, block| {
        let latents = cut.latents(f, pages, block);
        let tokens = cut.positions(f, block);
        let cells = [dims[0], cut.tokens];
        let visible =
            f.le(f.broadcast_in_dim(tokens, &cells, &[1]), f.broadcast_in_dim(positions, &cells, &[0]));
        let latents = keep_rows(f, latents, visible, 1);
        let scores = f.dot_general(queries, latents, &Dot::contract([2], [2]).batch([0], [0]));
        let visible = f.broadcast_like(visible, scores, &[0, 2]);
        (hide(f, scores, visible), latents)
    })
}

/// Latents of tokens outside `kept` become 0: what was never written may be NaN, which no product can mask.
fn keep_rows(f: &Func, latents: Value, kept: Value, axis: usize) -> Value {
    let axes: Vec<usize> = (0..=axis).collect();
    let kept = f.broadcast_like(kept, latents, &axes);
    f.select(kept, latents, f.splat_like(latents, 0.0))
}

fn hide(f: &Func, scores: Value, visible: Value) -> Value {
    f.select(visible, scores, f.splat_like(scores, f64::NEG_INFINITY))
}

/// The cache of a sequence cut into blocks of whole pages.
struct Blocks {
    /// The page table, filled up to whole blocks.
    table: Value,
    /// Pages of a block.
    pages: i64,
    /// Tokens of a block.
    tokens: i64,
    /// Blocks of the longest sequence.
    count: i64,
}

impl Blocks {
    fn new(f: &Func, pages: &Pages) -> Self {
        let (dims, page_tokens) = (f.dims(pages.table), f.dim(pages.latents, 2));
        let all = dims.last().copied().unwrap_or(1);
        let per_block = (BLOCK_TOKENS / page_tokens).clamp(1, all.max(1));
        let count = (all + per_block - 1) / per_block;
        let none = vec![0; dims.len()];
        let mut high = none.clone();
        high[dims.len() - 1] = count * per_block - all;
        let table = f.pad(pages.table, f.scalar(pages.trash), &none, &high, &none);
        Self { table, pages: per_block, tokens: per_block * page_tokens, count }
    }

    /// s32 `[tokens]`: positions of a block's tokens in the sequence.
    fn positions(&self, f: &Func, block: Value) -> Value {
        let inside = f.iota(DType::S32.tensor([self.tokens]), 0);
        let start = f.mul_scalar(block, self.tokens as f64);
        f.add(inside, f.broadcast_like(start, inside, &[]))
    }

    /// A block's latents: `[tokens, latent_width]`, or `[B, tokens, latent_width]`.
    fn latents(&self, f: &Func, pages: &Pages, block: Value) -> Value {
        let mut sizes = f.dims(self.table);
        let last = sizes.len() - 1;
        sizes[last] = self.pages;
        let mut starts = vec![f.scalar(0i32); last];
        starts.push(f.mul_scalar(block, self.pages as f64));
        let table = f.dynamic_slice(self.table, &starts, &sizes);
        let mut column = sizes.clone();
        column.push(1);
        let layer = f.broadcast_in_dim(pages.layer, &column, &[]);
        let places = f.concatenate(&[layer, f.reshape(table, &column)], column.len() - 1);
        let found = f.take_at(pages.latents, places);
        let width = f.dim(pages.latents, 3);
        sizes[last] = self.tokens;
        sizes.push(width);
        f.reshape(found, &sizes)
    }

    /// Attention over as many blocks as `limit` tokens need, by online softmax. `scores_of` gives a block's scores
    /// `[lead..., tokens]`, -inf where hidden, and its latents. The first token is visible to every row.
    fn run(
        &self,
        f: &Func,
        limit: Value,
        lead: &[i64],
        kv_lora: i64,
        scores_of: impl FnOnce(&Func, Value) -> (Value, Value),
    ) -> Value {
        let mut wide = lead.to_vec();
        wide.push(kv_lora);
        let init = Running {
            peak: f.splat(f32::NEG_INFINITY, lead),
            total: f.splat(0f32, lead),
            sum: f.splat(0f32, &wide),
        };
        if self.count == 1 {
            let (scores, latents) = scores_of(f, f.scalar(0i32));
            return init.add(f, scores, latents).result(f);
        }
        let tokens = f.scalar(self.tokens as i32);
        let needed = f.div(f.add(limit, f.scalar(self.tokens as i32 - 1)), tokens);
        let init = [f.scalar(0i32), init.peak, init.total, init.sum];
        let carried = f.while_loop(
            &init,
            |f, carried| f.lt(carried[0], needed),
            |f, carried| {
                let (scores, latents) = scores_of(f, carried[0]);
                let so_far = Running { peak: carried[1], total: carried[2], sum: carried[3] };
                let next = so_far.add(f, scores, latents);
                vec![f.add_scalar(carried[0], 1.0), next.peak, next.total, next.sum]
            },
        );
        Running { peak: carried[1], total: carried[2], sum: carried[3] }.result(f)
    }
}

/// A softmax in progress.
struct Running {
    /// Largest score so far.
    peak: Value,
    /// Sum of `exp(score - peak)`.
    total: Value,
    /// Sum of `exp(score - peak)` times compressions.
    sum: Value,
}

impl Running {
    fn add(&self, f: &Func, scores: Value, latents: Value) -> Self {
        let last = f.dims(scores).len() - 1;
        let lead: Vec<usize> = (0..last).collect();
        let peak = f.max(self.peak, f.reduce_max(scores, &[last]));
        let weights = f.exp(f.sub(scores, f.broadcast_like(peak, scores, &lead)));
        let shrink = f.exp(f.sub(self.peak, peak));
        let kept = |old: Value| f.mul(old, f.broadcast_like(shrink, old, &lead));
        let total = f.add(kept(self.total), f.sum(weights, &[last]));
        let values = f.slice_axis(latents, f.dims(latents).len() - 1, 0, f.dim(self.sum, last));
        let sum = f.add(kept(self.sum), f.matmul(weights, values));
        Self { peak, total, sum }
    }

    fn result(&self, f: &Func) -> Value {
        let lead: Vec<usize> = (0..f.dims(self.total).len()).collect();
        f.div(self.sum, f.broadcast_like(self.total, self.sum, &lead))
    }
}
