//! What the configs of all families say alike.

use serde_json::{Value, json};

use super::fields::{Fields, unsupported};
use super::{Attention, Ffn, Layer, Mla, Moe};
use crate::Error;

/// Most taps of the short convolution.
const MAX_CONV_KERNEL: usize = 16;

/// A size that stands in `section` under the published name, or beside it under transformers'.
pub(super) fn either(
    section: &Fields,
    inner: &'static str,
    fields: &Fields,
    outer: &'static str,
) -> Result<usize, Error> {
    match section.optional_size(&[inner])? {
        Some(size) => Ok(size),
        None => fields.size(&[outer]),
    }
}

/// Heads, channels and taps of the recurrent layers.
pub(super) fn linear_sizes(fields: &Fields, linear: &Fields) -> Result<[usize; 3], Error> {
    let taps = either(linear, "short_conv_kernel_size", fields, "linear_conv_kernel_dim")?;
    if !(2..=MAX_CONV_KERNEL).contains(&taps) {
        let reason = format!("must be 2 to {MAX_CONV_KERNEL}");
        return Err(unsupported("linear_conv_kernel_dim", &json!(taps), &reason));
    }
    let heads = either(linear, "num_heads", fields, "linear_num_heads")?;
    Ok([heads, either(linear, "head_dim", fields, "linear_head_dim")?, taps])
}

/// Everything no family's code does, by the field that would ask for it.
pub(super) fn refuse_unserved(fields: &Fields) -> Result<(), Error> {
    fields.only("attention_bias", &json!(false))?;
    fields.only("moe_router_activation_func", &json!("sigmoid"))?;
    fields.only("scoring_func", &json!("sigmoid"))?;
    fields.only("moe_layer_freq", &json!(1))?;
    for group in ["num_expert_group", "n_group", "topk_group"] {
        fields.only(group, &json!(1))?;
    }
    let heads = fields.size(&["num_attention_heads"])?;
    fields.only("num_key_value_heads", &json!(heads))
}

/// The latent attention without what only one family has.
pub(super) fn read_mla(fields: &Fields, norm_eps: f64) -> Result<Mla, Error> {
    Ok(Mla {
        heads: fields.size(&["num_attention_heads"])?,
        kv_lora: fields.size(&["kv_lora_rank"])?,
        rope: fields.count(&["qk_rope_head_dim"])?,
        nope: fields.size(&["qk_nope_head_dim"])?,
        value: fields.size(&["v_head_dim"])?,
        q_lora: fields.optional_size(&["q_lora_rank"])?,
        gated: false,
        norm_eps,
        indexer: None,
    })
}

/// The experts, if any layer has some.
pub(super) fn read_moe(fields: &Fields, layers: &[Layer]) -> Result<Option<Moe>, Error> {
    if layers.iter().all(|layer| layer.ffn == Ffn::Dense) {
        return Ok(None);
    }
    let experts = fields.size(&["num_experts", "num_local_experts", "n_routed_experts"])?;
    let top_k = fields.size(&["num_experts_per_token", "num_experts_per_tok"])?;
    if top_k > experts {
        return Err(unsupported("num_experts_per_token", &json!(top_k), "is more than num_experts"));
    }
    Ok(Some(Moe {
        experts,
        top_k,
        shared: fields.count_or(&["num_shared_experts", "n_shared_experts"], 0)?,
        inner: fields.size(&["moe_intermediate_size"])?,
        scale: fields.number(&["routed_scaling_factor"], 1.0)?,
        renormalise: fields.flag(&["moe_renormalize", "norm_topk_prob"], true)?,
        latent: None,
    }))
}

/// Kinds of all layers. `layer_types` lists them in order; published configs number them from `first`.
pub(super) fn read_layers(fields: &Fields, linear: &Fields, first: usize) -> Result<Vec<Layer>, Error> {
    let count = fields.size(&["num_hidden_layers"])?;
    let attention = match fields.strings("layer_types")? {
        Some(kinds) => named(&kinds, "layer_types", |kind| match kind {
            "linear_attention" => Some(Attention::Kda),
            "full_attention" | "indexed_attention" => Some(Attention::Mla),
            _ => None,
        })?,
        None => numbered(linear, count, first)?,
    };
    let ffn = match fields.strings("mlp_layer_types")? {
        Some(kinds) => named(&kinds, "mlp_layer_types", |kind| match kind {
            "dense" => Some(Ffn::Dense),
            "sparse" => Some(Ffn::Moe),
            _ => None,
        })?,
        None => {
            let dense = fields.number(&["first_k_dense_replace"], 1.0)?;
            (0..count).map(|layer| if (layer as f64) < dense { Ffn::Dense } else { Ffn::Moe }).collect()
        }
    };
    for (field, length) in [("layer_types", attention.len()), ("mlp_layer_types", ffn.len())] {
        if length != count {
            return Err(unsupported(field, &json!(length), "must list num_hidden_layers kinds"));
        }
    }
    Ok(attention.into_iter().zip(ffn).map(|(attention, ffn)| Layer { attention, ffn }).collect())
}

fn named<T>(kinds: &[&str], field: &'static str, kind: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, Error> {
    let unknown = |name: &str| unsupported(field, &json!(name), "is not a kind of layer");
    kinds.iter().map(|&name| kind(name).ok_or_else(|| unknown(name))).collect()
}

fn numbered(linear: &Fields, count: usize, first: usize) -> Result<Vec<Attention>, Error> {
    let mut layers: Vec<Option<Attention>> = vec![None; count];
    for (field, kind) in [("full_attn_layers", Attention::Mla), ("kda_layers", Attention::Kda)] {
        let list = linear.indices(field)?.ok_or(Error::Missing { field })?;
        for number in list {
            match number.checked_sub(first).and_then(|index| layers.get_mut(index)) {
                Some(layer @ None) => *layer = Some(kind),
                Some(Some(_)) => return Err(unsupported(field, &json!(number), "names a layer twice")),
                None => {
                    let reason = format!("is not a layer, counted from {first}");
                    return Err(unsupported(field, &json!(number), &reason));
                }
            }
        }
    }
    let missing =
        |index: usize| unsupported("kda_layers", &Value::Null, &format!("lacks layer {}", index + first));
    layers.into_iter().enumerate().map(|(index, kind)| kind.ok_or_else(|| missing(index))).collect()
}

/// Whether the checkpoint has a draft layer; more than one is not served.
pub(super) fn has_draft_layer(fields: &Fields) -> Result<bool, Error> {
    match fields.count_or(&["num_nextn_predict_layers"], 0)? {
        0 => Ok(false),
        1 => Ok(true),
        more => Err(unsupported("num_nextn_predict_layers", &json!(more), "at most 1 is served")),
    }
}
