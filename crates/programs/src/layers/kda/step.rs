use stablehlo::{Func, Value};

/// One token of each of several sequences: `q, k, v, decay [B, H, d]`, `beta [B, H]`, state `[B, H, key, value]`.
/// Gives the output `[B, H, value]` and the next state.
///
/// Query and key meet the old state in the same pass; the output's share of what this token writes is
/// `(q . k) u`, so that the new state is written once and never read.
pub(crate) fn step(f: &Func, qkv: [Value; 3], decay: Value, beta: Value, state: Value) -> (Value, Value) {
    let [q, k, v] = qkv;
    let kept = f.exp(decay);
    let dims = f.dims(k);
    let row = |x: Value| f.reshape(f.mul(x, kept), &[dims[0], dims[1], 1, dims[2]]);
    let both = f.matmul(f.concatenate(&[row(k), row(q)], 2), state);
    let half = |at: i64| f.reshape(f.slice_axis(both, 2, at, at + 1), &f.dims(v));
    let (recalled, read) = (half(0), half(1));
    let error = f.sub(v, recalled);
    let written = f.mul(error, f.broadcast_like(beta, error, &[0, 1]));
    let overlap = f.sum(f.mul(q, k), &[2]);
    let output = f.add(read, f.mul(written, f.broadcast_like(overlap, written, &[0, 1])));
    let decayed = f.mul(state, f.broadcast_like(kept, state, &[0, 1, 2]));
    let outer = f.mul(f.broadcast_like(k, state, &[0, 1, 2]), f.broadcast_like(written, state, &[0, 1, 3]));
    (output, f.add(decayed, outer))
}
