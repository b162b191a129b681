use stablehlo::{Dot, Func, Value};

/// Tokens of a block: inside one, the decay between two tokens is taken pair by pair.
pub(super) const BLOCK: i64 = 8;

/// Decay factors of tiles cut into blocks, every one of them at most 1.
///
/// Each is the exponential of a sum over exactly the tokens it spans. Differences of running sums would be shorter, but
/// a token that forgets almost everything leaves a sum in which its neighbours' small decays are lost.
pub(super) struct Decay {
    /// `[tiles, H, blocks, d, BLOCK, BLOCK]`: from after the second token to the first, included; 1 where the second is
    /// not earlier.
    pub(super) pairs: Value,
    /// `[tiles, H, blocks, BLOCK, d]`: from the block's start to this token, included.
    pub(super) from_block: Value,
    /// `[tiles, H, blocks, BLOCK, d]`: after this token to the block's end.
    pub(super) to_block_end: Value,
    /// `[tiles, H, blocks, blocks, d]`: over the blocks strictly between a later and an earlier one.
    pub(super) between: Value,
    /// `[tiles, H, tile, d]`: from the tile's start to this token, included.
    pub(super) entering: Value,
    /// `[tiles, H, tile, d]`: after this token to the tile's end.
    pub(super) leaving: Value,
    /// `[tiles, H, d]`: over the whole tile.
    pub(super) through: Value,
}

impl Decay {
    /// Of log decay `[tiles, H, tile, d]`.
    pub(super) fn new(f: &Func, log: Value) -> Self {
        let dims = f.dims(log);
        let (tiles, heads, tile, dim) = (dims[0], dims[1], dims[2], dims[3]);
        let blocks = tile / BLOCK;
        let log = f.reshape(log, &[tiles, heads, blocks, BLOCK, dim]);

        let between = pairs(BLOCK, |later, earlier, token| earlier < token && token <= later);
        let start = singles(BLOCK, |at, token| token <= at);
        let end = singles(BLOCK, |at, token| token > at);
        let tokens = f.exp(sums(f, log, &[&between, &start, &end]));
        let token_parts = f.split(tokens, 4, &[BLOCK * BLOCK, BLOCK, BLOCK]);
        let [from_block, to_block_end] = [1, 2].map(|part| f.transpose(token_parts[part], &[0, 1, 2, 4, 3]));

        let per_block = f.sum(log, &[3]);
        let between = pairs(blocks, |later, earlier, block| earlier < block && block < later);
        let before = singles(blocks, |at, block| block < at);
        let after = singles(blocks, |at, block| block > at);
        let whole = vec![1.0; blocks as usize];
        let over_blocks = f.exp(sums(f, per_block, &[&between, &before, &after, &whole]));
        let over_blocks = f.transpose(over_blocks, &[0, 1, 3, 2]);
        let block_parts = f.split(over_blocks, 2, &[blocks * blocks, blocks, blocks, 1]);
        let spread = |token: Value, block: Value| {
            let both = f.mul(token, f.broadcast_like(block, token, &[0, 1, 2, 4]));
            f.reshape(both, &[tiles, heads, tile, dim])
        };
        Self {
            pairs: f.reshape(token_parts[0], &[tiles, heads, blocks, dim, BLOCK, BLOCK]),
            from_block,
            to_block_end,
            between: f.reshape(block_parts[0], &[tiles, heads, blocks, blocks, dim]),
            entering: spread(from_block, block_parts[1]),
            leaving: spread(to_block_end, block_parts[2]),
            through: f.reshape(block_parts[3], &[tiles, heads, dim]),
        }
    }
}

/// Rows of 0 and 1 over `n` places, one for each (later, earlier) pair, marking the places that satisfy `holds`.
fn pairs(n: i64, holds: impl Fn(i64, i64, i64) -> bool) -> Vec<f32> {
    let rows = (0..n).flat_map(|later| (0..n).map(move |earlier| (later, earlier)));
    rows.flat_map(|(later, earlier)| (0..n).map(move |at| (later, earlier, at)))
        .map(|(later, earlier, at)| f32::from(u8::from(holds(later, earlier, at))))
        .collect()
}

/// Rows of 0 and 1 over `n` places, one for each place.
fn singles(n: i64, holds: impl Fn(i64, i64) -> bool) -> Vec<f32> {
    (0..n)
        .flat_map(|row| (0..n).map(move |at| (row, at)))
        .map(|(row, at)| f32::from(u8::from(holds(row, at))))
        .collect()
}

/// Sums of `x [..., n, d]` over the places each row of `masks` marks: `[..., d, rows]`.
fn sums(f: &Func, x: Value, masks: &[&[f32]]) -> Value {
    let rank = f.dims(x).len();
    let n = f.dim(x, rank - 2);
    let rows = masks.concat();
    let mask = f.constant(&rows, &[rows.len() as i64 / n.max(1), n]);
    f.dot_general(x, mask, &Dot::contract([rank - 2], [1]))
}
