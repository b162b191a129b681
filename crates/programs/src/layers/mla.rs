//! Multi-head latent attention over a paged cache of latents, in absorbed form.
//!
//! A cached latent is `[c ; r]`, the normed compression and the unrotated key part all heads share. A head's key is
//! `[K_h c ; r]` and its value `V_h c`, so `q . k = (K_h^T q_n) . c + q_r . r`: queries are taken into latent space once,
//! every head reads the same latents, and values are expanded after the weighted sum.

mod blocks;

pub(crate) use blocks::{Pages, attend_batch, attend_chunk};

use stablehlo::{Dot, Value};

use super::Layer;
use super::norm::rms_norm;

/// Epsilon of the norms on compressed queries and latents: the reference keeps its module default here.
const LATENT_EPS: f64 = 1e-6;

/// Queries in latent space, scaled, `[rows, heads, latent_width]`, and the rows' own latents `[rows, latent_width]`.
pub(crate) fn project(layer: &Layer<'_>, x: Value) -> (Value, Value) {
    let (f, shape) = (layer.f, &layer.config.mla);
    let (rows, heads) = (f.dim(x, 0), shape.heads as i64);
    let (nope, rope, lora) = (shape.nope as i64, shape.rope as i64, shape.kv_lora as i64);
    let all = f.linear(x, layer.weight("mla.project"));
    let first = f.dim(all, 1) - lora - rope;
    let parts = f.split(all, 1, &[first, lora, rope]);
    let queries = match shape.q_lora {
        None => parts[0],
        Some(_) => {
            let normed = rms_norm(f, parts[0], layer.weight("mla.query_norm"), LATENT_EPS);
            f.linear(normed, layer.weight("mla.query"))
        }
    };
    let scale = (shape.query_width() as f64).powf(-0.5);
    let queries = f.mul_scalar(f.reshape(queries, &[rows, heads, nope + rope]), scale);
    let own = f.slice_axis(queries, 2, 0, nope);
    let shared = f.slice_axis(queries, 2, nope, nope + rope);
    let absorbed = f.dot_general(own, layer.weight("mla.key"), &Dot::contract([2], [1]).batch([1], [0]));
    let absorbed = f.transpose(absorbed, &[1, 0, 2]);
    let normed = rms_norm(f, parts[1], layer.weight("mla.latent_norm"), LATENT_EPS);
    (f.concatenate(&[absorbed, shared], 2), f.concatenate(&[normed, parts[2]], 1))
}

/// Weighted sums of compressions `[rows, heads, kv_lora]` to `[rows, hidden]`.
pub(crate) fn output(layer: &Layer<'_>, sums: Value) -> Value {
    let (f, shape) = (layer.f, &layer.config.mla);
    let rows = f.dim(sums, 0);
    let values = f.dot_general(sums, layer.weight("mla.value"), &Dot::contract([2], [2]).batch([1], [0]));
    let values = f.transpose(values, &[1, 0, 2]);
    f.linear(f.reshape(values, &[rows, (shape.heads * shape.value) as i64]), layer.weight("mla.out"))
}

#[cfg(test)]
mod tests;
