//! The Kimi-Linear family: `KimiLinearConfig` of `transformers`, and the published `config.json` it is read from.

use serde_json::{Value, json};

use super::fields::{Fields, unsupported};
use super::{Attention, Ffn, Kda, Layer, Mla, ModelConfig, Moe};
use crate::Error;

/// Most taps of the short convolution.
const MAX_CONV_KERNEL: usize = 16;

pub(super) fn read(fields: &Fields) -> Result<ModelConfig, Error> {
    let linear = fields.section("linear_attn_config")?;
    refuse_unserved(fields, &linear)?;
    let kda = Kda {
        heads: either(&linear, &["num_heads"], fields, &["linear_num_heads"])?,
        dim: either(&linear, &["head_dim"], fields, &["linear_head_dim"])?,
        conv_kernel: either(&linear, &["short_conv_kernel_size"], fields, &["linear_conv_kernel_dim"])?,
    };
    if !(2..=MAX_CONV_KERNEL).contains(&kda.conv_kernel) {
        let reason = format!("must be 2 to {MAX_CONV_KERNEL}");
        return Err(unsupported("linear_conv_kernel_dim", &json!(kda.conv_kernel), &reason));
    }
    let layers = read_layers(fields, &linear)?;
    let moe = if layers.iter().any(|layer| layer.ffn == Ffn::Moe) { Some(read_moe(fields)?) } else { None };
    let vocabulary = fields.size(&["vocab_size"])?;
    let eos = fields.tokens("eos_token_id")?;
    if let Some(id) = eos.iter().find(|&&id| id as usize >= vocabulary) {
        return Err(unsupported("eos_token_id", &json!(id), "is not in the vocabulary"));
    }
    Ok(ModelConfig {
        name: "kimi_linear".to_owned(),
        vocabulary,
        hidden: fields.size(&["hidden_size"])?,
        layers,
        kda,
        mla: read_mla(fields)?,
        dense_inner: fields.size(&["intermediate_size"])?,
        moe,
        rms_eps: fields.number(&["rms_norm_eps"], 1e-5)?,
        context: fields.size(&["model_max_length", "max_position_embeddings"])?,
        eos,
        bos: fields.tokens("bos_token_id")?.first().copied(),
        tied: fields.flag(&["tie_word_embeddings"], false)?,
    })
}

fn either(
    section: &Fields,
    inner: &[&'static str],
    fields: &Fields,
    outer: &[&'static str],
) -> Result<usize, Error> {
    match section.optional_size(inner)? {
        Some(size) => Ok(size),
        None => fields.size(outer),
    }
}

/// Everything the family's code does not do, by the field that would ask for it.
fn refuse_unserved(fields: &Fields, linear: &Fields) -> Result<(), Error> {
    fields.only("model_type", &json!("kimi_linear"))?;
    fields.only("hidden_act", &json!("silu"))?;
    fields.only("attention_bias", &json!(false))?;
    fields.only("mla_use_nope", &json!(true))?;
    fields.only("moe_router_activation_func", &json!("sigmoid"))?;
    fields.only("moe_layer_freq", &json!(1))?;
    fields.only("num_nextn_predict_layers", &json!(0))?;
    for group in ["num_expert_group", "n_group", "topk_group"] {
        fields.only(group, &json!(1))?;
    }
    fields.never("quantization_config")?;
    linear.never("gate_lower_bound")?;
    let heads = fields.size(&["num_attention_heads"])?;
    fields.only("num_key_value_heads", &json!(heads))
}

fn read_mla(fields: &Fields) -> Result<Mla, Error> {
    Ok(Mla {
        heads: fields.size(&["num_attention_heads"])?,
        kv_lora: fields.size(&["kv_lora_rank"])?,
        rope: fields.count(&["qk_rope_head_dim"])?,
        nope: fields.size(&["qk_nope_head_dim"])?,
        value: fields.size(&["v_head_dim"])?,
        q_lora: fields.optional_size(&["q_lora_rank"])?,
    })
}

fn read_moe(fields: &Fields) -> Result<Moe, Error> {
    let experts = fields.size(&["num_experts", "num_local_experts", "n_routed_experts"])?;
    let top_k = fields.size(&["num_experts_per_token", "num_experts_per_tok"])?;
    if top_k > experts {
        return Err(unsupported("num_experts_per_token", &json!(top_k), "is more than num_experts"));
    }
    Ok(Moe {
        experts,
        top_k,
        shared: fields.count(&["num_shared_experts", "n_shared_experts"])?,
        inner: fields.size(&["moe_intermediate_size"])?,
        scale: fields.number(&["routed_scaling_factor"], 1.0)?,
        renormalise: fields.flag(&["moe_renormalize", "norm_topk_prob"], true)?,
    })
}

/// Kinds of all layers. Published configs number layers from 1, `layer_types` lists them in order.
fn read_layers(fields: &Fields, linear: &Fields) -> Result<Vec<Layer>, Error> {
    let count = fields.size(&["num_hidden_layers"])?;
    let attention = match fields.strings("layer_types")? {
        Some(kinds) => named(&kinds, "layer_types", |kind| match kind {
            "linear_attention" => Some(Attention::Kda),
            "full_attention" => Some(Attention::Mla),
            _ => None,
        })?,
        None => numbered(linear, count)?,
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

fn numbered(linear: &Fields, count: usize) -> Result<Vec<Attention>, Error> {
    let mut layers: Vec<Option<Attention>> = vec![None; count];
    for (field, kind) in [("full_attn_layers", Attention::Mla), ("kda_layers", Attention::Kda)] {
        let list = linear.indices(field)?.ok_or(Error::Missing { field })?;
        for number in list {
            match number.checked_sub(1).and_then(|index| layers.get_mut(index)) {
                Some(layer @ None) => *layer = Some(kind),
                Some(Some(_)) => return Err(unsupported(field, &json!(number), "names a layer twice")),
                None => {
                    return Err(unsupported(field, &json!(number), "is not a layer, counted from 1"));
                }
            }
        }
    }
    let missing =
        |index: usize| unsupported("kda_layers", &Value::Null, &format!("lacks layer {}", index + 1));
    layers.into_iter().enumerate().map(|(index, kind)| kind.ok_or_else(|| missing(index))).collect()
}
