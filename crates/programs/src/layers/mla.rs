//! Multi-head latent attention over a paged cache of latents, in absorbed form.
//!
//! A cached latent is `[c ; r]`, the normed compression and the unrotated key part all heads share. A head's key is
//! `[K_h c ; r]` and its value `V_h c`, so `q . k = (K_h^T q_n) . c + q_r . r`: queries are taken into latent space once,
//! every head reads the same latents, and values are expanded after the weighted sum.

mod blocks;
mod chosen;
mod pages;
mod running;

pub(crate) use blocks::{attend_batch, attend_chunk};
pub(crate) use chosen::attend_chosen;
pub(crate) use pages::{Blocks, Pages};
pub(crate) use running::{hide, keep_rows};

use stablehlo::{Dot, Func, Value};

use super::Layer;
use super::linear::{dot, linear};
use super::norm::rms_norm;

/// What a layer's first products give for each row.
pub(crate) struct Projected {
    /// `[rows, heads, latent_width]`: queries in latent space, scaled.
    pub(crate) queries: Value,
    /// `[rows, latent_width]`: the rows' own latents.
    pub(crate) latents: Value,
    /// `[rows, q_lora]`: normed compressed queries, which an indexer reads too; the input itself without compression.
    pub(crate) compressed: Value,
    /// `[rows, heads * value]`: output gate before its sigmoid.
    gate: Option<Value>,
}

/// Queries, latents and gate of normed rows `[rows, hidden]`.
pub(crate) fn project(layer: &Layer<'_>, x: Value) -> Projected {
    let (f, shape) = (layer.f, &layer.config.mla);
    let (rows, heads) = (f.dim(x, 0), shape.heads as i64);
    let (nope, rope) = (shape.nope as i64, shape.rope as i64);
    let query = ("query", shape.q_lora.unwrap_or_else(|| shape.heads * shape.query_width()));
    let latent = ("latent", shape.latent_width());
    let (raw, latents, gate) = if shape.gated {
        let gate = ("gate", shape.heads * shape.value);
        let [raw, latents, gate] = layer.rows(x, "mla.project", [query, latent, gate]);
        (raw, latents, Some(gate))
    } else {
        let [raw, latents] = layer.rows(x, "mla.project", [query, latent]);
        (raw, latents, None)
    };
    let (compressed, queries) = match shape.q_lora {
        None => (x, raw),
        Some(_) => {
            let normed = rms_norm(f, raw, layer.weight("mla.query_norm"), shape.norm_eps);
            (normed, linear(f, normed, layer.matrix("mla.query")))
        }
    };
    let scale = (shape.query_width() as f64).powf(-0.5);
    let queries = f.mul_scalar(f.reshape(queries, &[rows, heads, nope + rope]), scale);
    let own = f.slice_axis(queries, 2, 0, nope);
    let key = layer.matrix("mla.key").float(f, f.dtype(x));
    let absorbed = dot(f, own, key, &Dot::contract([2], [1]).batch([1], [0]));
    let absorbed = f.transpose(absorbed, &[1, 0, 2]);
    let queries = if rope == 0 {
        absorbed
    } else {
        f.concatenate(&[absorbed, f.slice_axis(queries, 2, nope, nope + rope)], 2)
    };
    Projected { queries, latents: norm_latents(layer, latents), compressed, gate }
}

/// Rows `[..., width]` as wide as those of the array they meet, zeros behind.
pub(crate) fn fill(f: &Func, x: Value, array: Value) -> Value {
    let dims = f.dims(x);
    let last = dims.len() - 1;
    let wanted = f.dims(array).last().copied().unwrap_or(dims[last]);
    let none = vec![0; dims.len()];
    let mut high = none.clone();
    high[last] = wanted - dims[last];
    if high[last] == 0 { x } else { f.pad(x, f.full(f.dtype(x).scalar(), 0.0), &none, &high, &none) }
}

/// The rows' latents alone, for layers whose output nobody reads yet.
pub(crate) fn project_latents(layer: &Layer<'_>, x: Value) -> Value {
    project(layer, x).latents
}

fn norm_latents(layer: &Layer<'_>, raw: Value) -> Value {
    let (f, shape) = (layer.f, &layer.config.mla);
    let lora = shape.kv_lora as i64;
    let compressed = f.slice_axis(raw, 1, 0, lora);
    let normed = rms_norm(f, compressed, layer.weight("mla.latent_norm"), shape.norm_eps);
    if shape.rope == 0 {
        return normed;
    }
    f.concatenate(&[normed, f.slice_axis(raw, 1, lora, lora + shape.rope as i64)], 1)
}

/// Weighted sums of compressions `[rows, heads, kv_lora]`, gated where the model does, to `[rows, hidden]`.
pub(crate) fn output(layer: &Layer<'_>, projected: &Projected, sums: Value) -> Value {
    let (f, shape) = (layer.f, &layer.config.mla);
    let (rows, dtype) = (f.dim(sums, 0), f.dtype(projected.latents));
    let value = layer.matrix("mla.value").float(f, dtype);
    let values = dot(f, f.convert(sums, dtype), value, &Dot::contract([2], [2]).batch([1], [0]));
    let values = f.reshape(f.transpose(values, &[1, 0, 2]), &[rows, (shape.heads * shape.value) as i64]);
    let values = match projected.gate {
        Some(gate) => f.mul(values, f.logistic(gate)),
        None => values,
    };
    layer.sum(linear(f, values, layer.matrix("mla.out")))
}

#[cfg(test)]
mod tests;
