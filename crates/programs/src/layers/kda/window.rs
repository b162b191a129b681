use stablehlo::{DType, Dot, Func, Value};

use super::inverse::unit_lower_inverse;

/// What a window of `W` tokens of each of several sequences writes: enough to move the state over the first few of them
/// once it is known how many count. Keys and decay f32 `[B, W, H, d]`, what is written f32 `[B, W, H, value]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) keys: Value,
    pub(crate) decay: Value,
    pub(crate) written: Value,
}

/// A window of `W` tokens from the state `[B, H, key, value]` of each sequence: `q, k, v, decay [B, W, H, d]`,
/// `beta [B, W, H]`. Gives outputs `[B, W, H, value]` and what the window writes; the state stays where it is.
///
/// The state is read once. With `G` the running sum of decay, `u = (I + N)^-1 beta (V - K e^G S)` where
/// `N_ij = beta_i k_i . k_j e^(G_i - G_j)` below the diagonal, and the output is `Q e^G S + P u` with
/// `P_ij = q_i . k_j e^(G_i - G_j)` on and below it. Sums of at most six bounded decays lose nothing by being
/// subtracted.
pub(crate) fn window(f: &Func, qkv: [Value; 3], decay: Value, beta: Value, state: Value) -> (Value, Window) {
    let by_head = |x: Value| f.transpose(x, &[0, 2, 1, 3]);
    let [q, k, v] = qkv.map(by_head);
    let sums = f.cumsum(by_head(decay), 2);
    let beta = f.transpose(beta, &[0, 2, 1]);
    let entering = f.exp(sums);
    let dims = f.dims(k);
    let (length, pairs) = (dims[2], [dims[0], dims[1], dims[2], dims[2], dims[3]]);
    let later = |x: Value| f.broadcast_in_dim(x, &pairs, &[0, 1, 2, 4]);
    let earlier = |x: Value| f.broadcast_in_dim(x, &pairs, &[0, 1, 3, 4]);
    let spans = f.sub(later(sums), earlier(sums));
    let spans = f.exp(f.min(spans, f.splat_like(spans, 0.0)));
    let decayed = f.mul(spans, earlier(k));
    let square = DType::S32.tensor([dims[0], dims[1], length, length]);
    let (row, column) = (f.iota(square.clone(), 2), f.iota(square, 3));
    let meet = |x: Value, kept: Value| {
        let all = f.sum(f.mul(decayed, later(x)), &[4]);
        f.select(kept, all, f.splat_like(all, 0.0))
    };
    let spread = |x: Value| f.mul(x, f.broadcast_like(beta, x, &[0, 1, 2]));
    let inverse = unit_lower_inverse(f, spread(meet(k, f.gt(row, column))), length);
    let both = f.concatenate(&[f.mul(k, entering), f.mul(q, entering)], 2);
    let read = f.matmul(both, state);
    let (recalled, seen) = (f.slice_axis(read, 2, 0, length), f.slice_axis(read, 2, length, 2 * length));
    let written = f.matmul(inverse, spread(f.sub(v, recalled)));
    let output = f.add(seen, f.matmul(meet(q, f.ge(row, column)), written));
    let window = Window { keys: qkv[1], decay, written: by_head(written) };
    (by_head(output), window)
}

/// The state `[B, H, key, value]` after the first `count [B]` tokens of a window; with 0 it is the same to the last bit.
///
/// `e^(sum g) S + sum_t k_t e^(g after t) u_t^T` over the tokens that count: one product, no token after another.
pub(crate) fn recover(f: &Func, window: &Window, count: Value, state: Value) -> Value {
    let dims = f.dims(window.keys);
    let place = f.iota(DType::S32.tensor([dims[0], dims[1]]), 1);
    let counts = f.lt(place, f.broadcast_like(count, place, &[0]));
    let only = |x: Value| {
        let kept = f.broadcast_like(counts, x, &[0, 1]);
        f.select(kept, x, f.splat_like(x, 0.0))
    };
    let decay = only(window.decay);
    let total = f.sum(decay, &[1]);
    let through = f.cumsum(decay, 1);
    let after = f
        .exp(f.min(f.sub(f.broadcast_like(total, through, &[0, 2, 3]), through), f.splat_like(through, 0.0)));
    let keys = only(f.mul(only(window.keys), after));
    let how = Dot::contract([1], [1]).batch([0, 2], [0, 2]);
    let added = f.dot_general(keys, only(window.written), &how);
    let kept = f.mul(state, f.broadcast_like(f.exp(total), state, &[0, 1, 2]));
    let moved = f.add(kept, added);
    let none = f.eq(count, f.splat_like(count, 0.0));
    f.select(f.broadcast_like(none, state, &[0]), state, moved)
}
