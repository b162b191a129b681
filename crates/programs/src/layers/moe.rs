//! Mixture of experts: sigmoid scores plus a learnt bias choose, scores without it weigh.

mod grouped;

use model::Moe;
use stablehlo::{DType, Func, Value};

use super::Layer;
use super::ffn::swiglu;

/// Up to this many experts the chosen ones are found by comparing all pairs, which fuses; beyond, by `top_k`.
const PAIRWISE_EXPERTS: usize = 64;
/// From this many experts for each one that a token goes to, running all of them for every token is wasteful.
const GROUP_FROM: usize = 8;

/// `[rows, hidden]` through the routed and the shared experts.
pub(crate) fn moe(layer: &Layer<'_>, shape: &Moe, x: Value) -> Value {
    let weights = route(layer, shape, x);
    if shape.experts >= GROUP_FROM * shape.top_k {
        return grouped::run(layer, shape, x, weights);
    }
    let f = layer.f;
    let all = f.pad(weights, f.scalar(1f32), &[0, 0], &[0, shape.shared as i64], &[0, 0]);
    every_expert(f, x, all, layer.weight("moe.in"), layer.weight("moe.out"))
}

/// Weight of each routed expert for each row, `[rows, experts]`; 0 where it is not chosen.
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

/// All of the given experts for every row, weighed between their two products: `x [rows, hidden]`,
/// `weights [rows, experts]`, `enter [experts, 2 * inner, hidden]`, `leave [hidden, experts, inner]`.
fn every_expert(f: &Func, x: Value, weights: Value, enter: Value, leave: Value) -> Value {
    let dims = f.dims(enter);
    let (rows, experts, inner, hidden) = (f.dim(x, 0), dims[0], dims[1] / 2, dims[2]);
    let entered = f.linear(x, f.reshape(enter, &[experts * 2 * inner, hidden]));
    let active = swiglu(f, f.reshape(entered, &[rows, experts, 2 * inner]));
    let weighed = f.mul(active, f.broadcast_like(weights, active, &[0, 1]));
    let weighed = f.reshape(weighed, &[rows, experts * inner]);
    f.linear(weighed, f.reshape(leave, &[hidden, experts * inner]))
}

#[cfg(test)]
mod tests;
