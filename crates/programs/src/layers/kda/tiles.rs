use std::ops::RangeInclusive;

use stablehlo::{DType, Dot, Func, Value};

use super::decay::{BLOCK, Decay};
use super::inverse::unit_lower_inverse;
use super::overlap::overlaps;

/// Most tokens of a tile: within it everything is products of matrices, from tile to tile the state is carried. Work in
/// a tile grows with its tokens, work between tiles with the channels of a head, so small heads have shorter tiles.
const TILE: RangeInclusive<i64> = 32..=64;

/// The recurrence over the `C` tokens of a chunk, in matrix form.
///
/// `q, k, v, decay [C, H, d]`, `beta [C, H]`, state `[H, key, value]`; gives outputs `[C, H, value]` and the state after
/// the chunk. A token with decay 0 and beta 0 changes nothing, to the last bit.
///
/// With `G` the running sum of decay in a tile, `N_ij = beta_i k_i . k_j exp(G_i - G_j)` below the diagonal and
/// `T = (I + N)^-1`, a tile writes `U - W S` where `U = T (beta V)`, `W = T (beta K e^G)`; it leaves
/// `(diag(e^{G_C}) - Kd^T W) S + Kd^T U` with `Kd = K e^{G_C - G}`, and gives out
/// `(Q e^G - P W) S + P U` with `P_ij = q_i . k_j exp(G_i - G_j)` on and below the diagonal. All but the first of these
/// is done for every tile at once; the loop over tiles is one small product.
pub(crate) fn chunked(f: &Func, qkv: [Value; 3], decay: Value, beta: Value, state: Value) -> (Value, Value) {
    let tokens = f.dim(decay, 0);
    let tile = tile_length(tokens, f.dim(decay, 2));
    let tiles = tokens.div_euclid(tile) + i64::from(tokens % tile != 0);
    let cut = |x: Value| to_tiles(f, x, tiles, tile);
    let [q, k, v] = qkv.map(cut);
    // Each of these is read many times; without the barrier a compiler computes them anew at every place.
    let fixed = f.optimization_barrier(&[q, k, v, cut(decay), cut(beta)]);
    let [q, k, v, decay, beta] = std::array::from_fn(|at| fixed[at]);
    let decay = Decay::new(f, decay);

    let (below, through) = overlaps(f, q, k, &decay);
    let spread = |x: Value| f.mul(x, f.broadcast_like(beta, x, &[0, 1, 2]));
    let inverse = unit_lower_inverse(f, spread(below), BLOCK);
    let inputs = f.concatenate(&[f.mul(k, decay.entering), v], 3);
    let solved = f.matmul(inverse, spread(inputs));

    let dim = f.dim(k, 3);
    let of_state = |x: Value| f.slice_axis(x, 3, 0, dim);
    let of_values = |x: Value| f.slice_axis(x, 3, dim, f.dim(x, 3));
    let leaving = f.mul(k, decay.leaving);
    let written = f.dot_general(leaving, solved, &Dot::contract([2], [2]).batch([0, 1], [0, 1]));
    let carry = f.sub(diagonal(f, decay.through), of_state(written));
    let (entered, after) = scan(f, carry, of_values(written), state);

    let seen = f.matmul(through, solved);
    let query = f.sub(f.mul(q, decay.entering), of_state(seen));
    let output = f.add(f.matmul(query, entered), of_values(seen));
    (from_tiles(f, output, tokens), after)
}

/// The shortest tile that holds `tokens`, up to what suits heads of `dim` channels; a block times a power of 2.
fn tile_length(tokens: i64, dim: i64) -> i64 {
    let most = dim.clamp(*TILE.start(), *TILE.end());
    let mut tile = BLOCK;
    while 2 * tile <= most && tile < tokens {
        tile *= 2;
    }
    tile
}

/// `[C, H, ...]` to `[tiles, H, tile, ...]`, filled up with zeros.
fn to_tiles(f: &Func, x: Value, tiles: i64, tile: i64) -> Value {
    let dims = f.dims(x);
    let rank = dims.len();
    let none = vec![0; rank];
    let mut high = none.clone();
    high[0] = tiles * tile - dims[0];
    let full = f.pad(x, f.scalar(0f32), &none, &high, &none);
    let mut split = vec![tiles, tile];
    split.extend(&dims[1..]);
    let order: Vec<usize> = [0, 2, 1].into_iter().chain(3..=rank).collect();
    f.transpose(f.reshape(full, &split), &order)
}

/// `[tiles, H, tile, d]` to `[tokens, H, d]`.
fn from_tiles(f: &Func, x: Value, tokens: i64) -> Value {
    let dims = f.dims(x);
    let rows = f.reshape(f.transpose(x, &[0, 2, 1, 3]), &[dims[0] * dims[2], dims[1], dims[3]]);
    f.slice_axis(rows, 0, 0, tokens)
}

/// `x [A, B, n, n]` with the rows of `diagonals [A, B, n]` on the diagonals and 0 elsewhere.
fn diagonal(f: &Func, diagonals: Value) -> Value {
    let dims = f.dims(diagonals);
    let square = [dims[0], dims[1], dims[2], dims[2]];
    let wide = f.broadcast_in_dim(diagonals, &square, &[0, 1, 2]);
    let places = DType::S32.tensor(square);
    f.select(f.eq(f.iota(places.clone(), 2), f.iota(places, 3)), wide, f.splat_like(wide, 0.0))
}

/// Carries the state through the tiles, `S <- carry S + input`; gives the state each tile begins with,
/// `[tiles, H, key, value]`, and the last one.
fn scan(f: &Func, carry: Value, input: Value, state: Value) -> (Value, Value) {
    let tiles = f.dim(carry, 0);
    let all = f.splat_like(input, 0.0);
    let results = f.repeat(tiles as i32, &[state, all], |f, tile, carried| {
        let [state, all] = [carried[0], carried[1]];
        let moved = f.matmul(f.dynamic_index(carry, 0, tile), state);
        let next = f.add(moved, f.dynamic_index(input, 0, tile));
        vec![next, f.dynamic_update_index(all, state, 0, tile)]
    });
    (results[1], results[0])
}
