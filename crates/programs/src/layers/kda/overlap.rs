use stablehlo::{DType, Dot, Func, Value};

use super::decay::{BLOCK, Decay};

/// How tokens of a tile meet earlier ones, from `q, k [tiles, H, tile, d]`.
///
/// Gives `k_i . k_j` strictly below the diagonal and `q_i . k_j` on and below it, both decayed from `j` to `i`, both
/// `[tiles, H, tile, tile]` with zeros elsewhere.
pub(super) fn overlaps(f: &Func, q: Value, k: Value, decay: &Decay) -> (Value, Value) {
    let dims = f.dims(k);
    let blocks = [dims[0], dims[1], dims[2] / BLOCK, BLOCK, dims[3]];
    let [q, k] = [q, k].map(|x| f.reshape(x, &blocks));
    let far = across_blocks(f, q, k, decay);
    let near = inside_blocks(f, q, k, decay);
    let square = [dims[0], dims[1], dims[2], dims[2]];
    let cells = [blocks[0], blocks[1], blocks[2], BLOCK, blocks[2], BLOCK];
    let places = |axis| f.iota(DType::S32.tensor(square), axis);
    let (row, column) = (places(2), places(3));
    let join = |far: Value, near: Value| {
        let near = f.broadcast_in_dim(near, &cells, &[0, 1, 2, 3, 5]);
        let counter = DType::S32.tensor(cells);
        let same_block = f.eq(f.iota(counter.clone(), 2), f.iota(counter, 4));
        f.reshape(f.select(same_block, near, f.reshape(far, &cells)), &square)
    };
    let masked = |x: Value, keep: Value| f.select(keep, x, f.splat_like(x, 0.0));
    (masked(join(far[0], near[0]), f.gt(row, column)), masked(join(far[1], near[1]), f.ge(row, column)))
}

/// Products between tokens of different blocks, `[tiles, H, blocks, BLOCK, tile]`: the later token's decay is taken from
/// its block's start, the earlier one's to its block's end and over the blocks between, so that one product per block
/// serves all earlier ones.
fn across_blocks(f: &Func, q: Value, k: Value, decay: &Decay) -> [Value; 2] {
    let dims = f.dims(k);
    let pairs = [dims[0], dims[1], dims[2], dims[2], BLOCK, dims[4]];
    let later = f.concatenate(&[f.mul(k, decay.from_block), f.mul(q, decay.from_block)], 3);
    let earlier = f.broadcast_in_dim(f.mul(k, decay.to_block_end), &pairs, &[0, 1, 3, 4, 5]);
    let earlier = f.mul(earlier, f.broadcast_in_dim(decay.between, &pairs, &[0, 1, 2, 3, 5]));
    let earlier = f.reshape(earlier, &[dims[0], dims[1], dims[2], dims[2] * BLOCK, dims[4]]);
    let both = f.dot_general(later, earlier, &Dot::contract([4], [4]).batch([0, 1, 2], [0, 1, 2]));
    [f.slice_axis(both, 3, 0, BLOCK), f.slice_axis(both, 3, BLOCK, 2 * BLOCK)]
}

/// Products between tokens of one block, `[tiles, H, blocks, BLOCK, BLOCK]`, decayed pair by pair.
fn inside_blocks(f: &Func, q: Value, k: Value, decay: &Decay) -> [Value; 2] {
    let by_channel = |x: Value| f.transpose(x, &[0, 1, 2, 4, 3]);
    let [q, k] = [q, k].map(by_channel);
    let earlier = f.mul(decay.pairs, f.broadcast_like(k, decay.pairs, &[0, 1, 2, 3, 5]));
    let with = |later: Value| {
        let terms = f.mul(earlier, f.broadcast_like(later, earlier, &[0, 1, 2, 3, 4]));
        f.sum(terms, &[3])
    };
    [with(k), with(q)]
}
