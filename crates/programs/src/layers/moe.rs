//! Mixture of experts: sigmoid scores plus a learnt bias choose, scores without it weigh.

mod grouped;

use model::Moe;
use stablehlo::{DType, Func, Value};

use super::ffn::{activate_halves, gated};
use super::linear::linear;
use super::norm::rms_norm;
use super::{Layer, Matrix};

/// Up to this many experts the chosen ones are found by comparing all pairs, which fuses; beyond, by `top_k`.
const PAIRWISE_EXPERTS: usize = 64;
/// `[rows, hidden]` through the routed and the shared experts.
///
/// Latent experts read and write a space of their own; the router and the shared ones see the residual's.
///
/// On a mesh every device runs its share of the experts. Sums over devices are taken where the next operation is not linear:
/// before the norm of latent experts, and at the end, there for routed and shared ones together.
pub(crate) fn moe(layer: &Layer<'_>, shape: &Moe, x: Value) -> Value {
    let (f, share) = (layer.f, layer.share);
    let weights = share.part(f, route(layer, shape, x), 1);
    let inside = match shape.latent {
        Some(_) => share.mesh.gather(f, linear(f, x, layer.matrix("moe.enter")), 1),
        None => x,
    };
    let mut y = if shape.is_grouped() {
        grouped::run(layer, shape, inside, weights)
    } else {
        every_expert(layer, inside, weights)
    };
    if let Some(latent) = shape.latent {
        y = layer.sum(y);
        if latent.normed {
            y = rms_norm(f, y, layer.weight("moe.norm"), layer.config.rms_eps);
        }
        y = linear(f, share.part(f, y, 1), layer.matrix("moe.leave"));
    }
    if shape.shared > 0 {
        let inner = shape.shared * shape.inner / share.mesh.devices();
        y = f.add(y, gated(layer, x, "shared.in", inner, "shared.out"));
    }
    layer.sum(y)
}

/// Weight of each routed expert for each row, f32 `[rows, experts]`; 0 where it is not chosen.
fn route(layer: &Layer<'_>, shape: &Moe, x: Value) -> Value {
    let f = layer.f;
    let x = f.convert(x, DType::F32);
    let scores = layer.share.mesh.gather(f, f.linear(x, layer.weight("moe.router")), 1);
    let scores = f.logistic(scores);
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

/// All experts for every row, weighed between their two products: `x [rows, width]`, `weights [rows, experts]`;
/// `moe.in [experts, 2 * inner, width]`, `moe.out [width, experts, inner]`.
fn every_expert(layer: &Layer<'_>, x: Value, weights: Value) -> Value {
    let f = layer.f;
    let dtype = f.dtype(x);
    let (enter, leave) = (layer.matrix("moe.in").float(f, dtype), layer.matrix("moe.out").float(f, dtype));
    let dims = f.dims(enter);
    let (rows, experts, inner, width) = (f.dim(x, 0), dims[0], dims[1] / 2, dims[2]);
    let flat = |w: Value, dims: &[i64]| Matrix::Float(f.reshape(w, dims));
    let entered = linear(f, x, flat(enter, &[experts * 2 * inner, width]));
    let entered = f.reshape(entered, &[rows, experts, 2 * inner]);
    let active = activate_halves(f, layer.config.activation, entered);
    let weighed = f.mul(active, f.convert(f.broadcast_in_dim(weights, &f.dims(active), &[0, 1]), dtype));
    let weighed = f.reshape(weighed, &[rows, experts * inner]);
    linear(f, weighed, flat(leave, &[width, experts * inner]))
}

#[cfg(test)]
mod tests;
