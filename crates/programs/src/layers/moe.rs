//! Mixture of experts: sigmoid scores plus a learnt bias choose, scores without it weigh.

use model::Moe;
use stablehlo::{DType, Func, Value};

use super::Layer;
use super::ffn::{gated, swiglu};

/// Up to this many experts the chosen ones are found by comparing all pairs, which fuses; beyond, by `top_k`.
const PAIRWISE_EXPERTS: usize = 64;

/// `[rows, hidden]` through the routed and the shared experts.
pub(crate) fn moe(layer: &Layer<'_>, shape: &Moe, x: Value) -> Value {
    let f = layer.f;
    let weights = route(layer, shape, x);
    let routed = all_experts(layer, shape, x, weights);
    if shape.shared == 0 {
        return routed;
    }
    f.add(routed, gated(layer, x, "shared.in", "shared.out"))
}

/// Weight of each expert for each row, `[rows, experts]`; 0 where it is not chosen.
fn route(layer: &Layer<'_>, shape: &Moe, x: Value) -> Value {
    let f = layer.f;
    let scores = f.logistic(f.linear(x, layer.weight("moe.router")));
    let biased = f.add(scores, f.broadcast_like(layer.weight("moe.bias"), scores, &[1]));
    let chosen = choose(f, biased, shape.top_k);
    let kept = f.select(chosen, scores, f.splat_like(scores, 0.0));
    let weights = if shape.renormalise {
        let total = f.add_scalar(f.sum(kept, &[1]), 1e-20);
        f.div(kept, f.broadcast_like(total, kept, &[0]))
    } else {
        kept
    };
    f.mul_scalar(weights, shape.scale)
}

/// Whether each of `scores [rows, experts]` is among its row's `k` largest; of equals the lower expert comes first.
fn choose(f: &Func, scores: Value, k: usize) -> Value {
    let (rows, experts) = (f.dim(scores, 0), f.dim(scores, 1));
    if experts as usize > PAIRWISE_EXPERTS {
        let (_, ids) = f.top_k(scores, k as i64);
        let dims = [rows, k as i64, experts];
        let each = f.iota(DType::S32.tensor(dims), 2);
        return f.any(f.eq(each, f.broadcast_in_dim(ids, &dims, &[0, 1])), &[1]);
    }
    let dims = [rows, experts, experts];
    let mine = f.broadcast_in_dim(scores, &dims, &[0, 1]);
    let other = f.broadcast_in_dim(scores, &dims, &[0, 2]);
    let earlier = f.lt(f.iota(DType::S32.tensor(dims), 2), f.iota(DType::S32.tensor(dims), 1));
    let ahead = f.or(f.gt(other, mine), f.and(f.eq(other, mine), earlier));
    let rank = f.sum(f.convert(ahead, DType::S32), &[2]);
    f.lt(rank, f.splat_like(rank, k as f64))
}

/// Every expert for every row, weighed before the output product: two products in all.
fn all_experts(layer: &Layer<'_>, shape: &Moe, x: Value, weights: Value) -> Value {
    let f = layer.f;
    let (rows, hidden) = (f.dim(x, 0), f.dim(x, 1));
    let (experts, inner) = (shape.experts as i64, shape.inner as i64);
    let enter = f.reshape(layer.weight("moe.in"), &[experts * 2 * inner, hidden]);
    let leave = f.reshape(layer.weight("moe.out"), &[hidden, experts * inner]);
    let entered = f.reshape(f.linear(x, enter), &[rows, experts, 2 * inner]);
    let active = swiglu(f, entered);
    let weighed = f.mul(active, f.broadcast_like(weights, active, &[0, 1]));
    f.linear(f.reshape(weighed, &[rows, experts * inner]), leave)
}
