//! Which tokens top-k, top-p and min-p keep, found without sorting.
//!
//! A limit is a threshold on the logits, so the largest threshold that keeps enough is found bit by bit over the ordered
//! bits of the logits: 32 sums. Tokens equal to the last one kept are kept. Every sum is one of whole numbers that its float
//! type holds exactly, so that it does not depend on the order in which a device adds, hence not on the batch.

use stablehlo::{DType, Func, Value};

use super::{Columns, any, spread};
use crate::sampling::row::{asks, real, word};

/// A token as likely as the likeliest weighs 2^30; a sum over any vocabulary is exact in f64.
const WEIGHT_BITS: i32 = 30;
/// Bits of an f32.
const KEY_BITS: i32 = 32;

/// pred `[B, V]`: the tokens that stay. `weights` are probabilities relative to the row's likeliest token.
pub(super) fn kept(f: &Func, columns: &Columns, logits: Value, weights: Value) -> Value {
    let keys = ordered(f, logits);
    let asked = columns.ask(f, asks::LIMIT);
    let keep_all = |f: &Func| f.splat(0u32, &f.dims(asked));
    let threshold = f.if_else(
        any(f, asked),
        |f| {
            let likeliest = top_k(f, columns, keys);
            let nucleus = top_p(f, columns, keys, weights, likeliest);
            vec![f.select(asked, f.max(likeliest, nucleus), keep_all(f))]
        },
        |f| vec![keep_all(f)],
    );
    let within = f.ge(keys, spread(f, threshold[0], keys));
    f.and(within, f.ge(weights, spread(f, columns.reals[real::MIN_P], weights)))
}

/// u32 in the order of the floats: bits as they are with the sign flipped, or all flipped for negative ones.
fn ordered(f: &Func, floats: Value) -> Value {
    // Both zeros are one value and must be one key.
    let floats = f.select(f.eq(floats, f.splat_like(floats, 0.0)), f.splat_like(floats, 0.0), floats);
    let bits = f.bitcast_convert(floats, DType::U32);
    let sign = f.splat(1u32 << 31, &f.dims(bits));
    let negative = f.ge(bits, sign);
    f.select(negative, f.not(bits), f.or(bits, sign))
}

/// u32 `[B]`: the largest threshold that keeps at least k tokens; that of the smallest token where all stay.
fn top_k(f: &Func, columns: &Columns, keys: Value) -> Value {
    let asked = f.convert(columns.words[word::TOP_K], DType::F32);
    let all = f.splat_like(asked, f.dim(keys, 1) as f64);
    let wanted = f.select(f.eq(asked, f.splat_like(asked, 0.0)), all, f.min(asked, all));
    largest(f, keys, f.splat(1f32, &f.dims(keys)), wanted)
}

/// u32 `[B]`: the largest threshold that keeps a share of at least p of what the threshold `likeliest` keeps; 0 where
/// p is 1.
fn top_p(f: &Func, columns: &Columns, keys: Value, weights: Value, likeliest: Value) -> Value {
    let whole = f.round_nearest_even(f.mul_scalar(weights, 2f64.powi(WEIGHT_BITS)));
    let in_play = f.ge(keys, spread(f, likeliest, keys));
    let whole = f.convert(f.select(in_play, whole, f.splat_like(whole, 0.0)), DType::F64);
    let total = f.sum(whole, &[1]);
    let share = columns.reals[real::TOP_P];
    let wanted = f.floor(f.mul(total, f.convert(share, DType::F64)));
    // At least the likeliest token stays, however small the share.
    let wanted = f.max(wanted, f.splat_like(total, 1.0));
    let threshold = largest(f, keys, whole, wanted);
    f.select(f.lt(share, f.splat_like(share, 1.0)), threshold, f.splat_like(threshold, 0.0))
}

/// u32 `[B]`: the largest threshold t for which the `amounts` of the keys from t on sum to `wanted` or more.
fn largest(f: &Func, keys: Value, amounts: Value, wanted: Value) -> Value {
    let start = f.splat(0u32, &[f.dim(keys, 0)]);
    let top_bit = f.splat(1u32 << (KEY_BITS - 1), &f.dims(start));
    let found = f.repeat(KEY_BITS, &[start, top_bit], |f, _, carried| {
        let [threshold, bit] = carried else {
            return carried.to_vec();
        };
        let candidate = f.or(*threshold, *bit);
        let reached = f.ge(keys, spread(f, candidate, keys));
        let amount = f.sum(f.select(reached, amounts, f.splat_like(amounts, 0.0)), &[1]);
        let next = f.select(f.ge(amount, wanted), candidate, *threshold);
        vec![next, f.shift_right_logical(*bit, f.splat_like(*bit, 1.0))]
    });
    found[0]
}
