//! GLM-5.3-Flash: `Glm5NextTextConfig` of `transformers` and the published `config.json`. Layer lists count from 0.

use serde_json::{Value, json};

use super::family::{has_draft_layer, linear_sizes, read_layers, read_mla, read_moe, refuse_unserved};
use super::fields::{Fields, unsupported};
use super::{Activation, Family, Indexer, Kda, ModelConfig, Mtp, MtpReads, Residual};
use crate::Error;

pub(super) fn read(fields: &Fields) -> Result<ModelConfig, Error> {
    let linear = fields.section("linear_attn_config")?;
    refuse_unserved(fields)?;
    fields.only("hidden_act", &json!("silu"))?;
    fields.only("qk_rope_head_dim", &json!(0))?;
    fields.only("index_kpool_always_select_tail", &json!(true))?;
    refuse_shared_indexers(fields)?;
    let rms_eps = fields.number(&["rms_norm_eps"], 1e-5)?;
    let [heads, dim, conv_kernel] = linear_sizes(fields, &linear)?;
    let decay_bound = match linear.find(&["gate_lower_bound"]) {
        Some(_) => linear.negative("gate_lower_bound", -5.0)?,
        None => fields.negative("linear_lower_bound", -5.0)?,
    };
    let layers = read_layers(fields, &linear, 0)?;
    let share_index = fields.flag(&["index_share_for_mtp_iteration"], true)?;
    let mut mla = read_mla(fields, rms_eps)?;
    if mla.q_lora.is_none() {
        return Err(Error::Missing { field: "q_lora_rank" });
    }
    mla.indexer = Some(read_indexer(fields)?);
    ModelConfig {
        family: Family::Glm5Next,
        vocabulary: fields.size(&["vocab_size"])?,
        hidden: fields.size(&["hidden_size"])?,
        kda: Kda { heads, dim, conv_kernel, decay_bound: Some(decay_bound), full_gate: false },
        mla,
        dense_inner: fields.size(&["intermediate_size"])?,
        moe: read_moe(fields, &layers)?,
        layers,
        activation: Activation::ClampedSwiglu { limit: fields.number(&["swiglu_limit"], 10.0)? },
        residual: Residual::Streams {
            count: fields.optional_size(&["hc_mult"])?.unwrap_or(4),
            iterations: fields.optional_size(&["hc_sinkhorn_iters"])?.unwrap_or(20),
            eps: fields.number(&["hc_eps"], 1e-6)?,
        },
        mtp: has_draft_layer(fields)?.then_some(Mtp { reads: MtpReads::AfterNorm, share_index }),
        rms_eps,
        context: fields.size(&["max_position_embeddings", "model_max_length"])?,
        eos: fields.tokens("eos_token_id")?,
        bos: fields.tokens("bos_token_id")?.first().copied(),
        tied: fields.flag(&["tie_word_embeddings"], false)?,
    }
    .checked()
}

fn read_indexer(fields: &Fields) -> Result<Indexer, Error> {
    let pool = fields.size(&["index_kpool"])?;
    let tokens = fields.size(&["index_topk"])?;
    if !tokens.is_multiple_of(pool) {
        return Err(unsupported("index_topk", &json!(tokens), "must be a multiple of index_kpool"));
    }
    Ok(Indexer {
        heads: fields.size(&["index_n_heads"])?,
        dim: fields.size(&["index_head_dim"])?,
        pool,
        chosen: tokens / pool,
    })
}

/// Layers that take another's choice of pools are a thing of other models of this architecture.
fn refuse_shared_indexers(fields: &Fields) -> Result<(), Error> {
    fields.only("index_topk_freq", &json!(1))?;
    fields.never("index_topk_pattern")?;
    let kinds = fields.strings("indexer_types")?.unwrap_or_default();
    match kinds.iter().find(|&&kind| kind != "full") {
        Some(&kind) => Err(unsupported("indexer_types", &Value::from(kind), "only full is served")),
        None => Ok(()),
    }
}
