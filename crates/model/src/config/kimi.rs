//! Kimi-Linear and Kimi K3: `KimiLinearConfig` of `transformers`, the published `config.json`s, and mlx-lm's `TextArgs`.
//! Published layer lists count from 1.

use serde_json::json;

use super::family::{has_draft_layer, linear_sizes, read_layers, read_mla, read_moe, refuse_unserved};
use super::fields::Fields;
use super::{Activation, Family, Kda, LatentExperts, ModelConfig, Mtp, MtpReads, Residual};
use crate::Error;

/// The reference keeps its norm module's default on compressed queries and latents.
const LATENT_EPS: f64 = 1e-6;

pub(super) fn read(family: Family, fields: &Fields) -> Result<ModelConfig, Error> {
    let linear = fields.section("linear_attn_config")?;
    refuse_unserved(fields)?;
    fields.only("mla_use_nope", &json!(true))?;
    let k3 = family == Family::KimiK3;
    if k3 {
        fields.only("hidden_act", &json!("situ"))?;
    } else {
        fields.only("hidden_act", &json!("silu"))?;
        fields.only("num_nextn_predict_layers", &json!(0))?;
        fields.never("quantization_config")?;
        linear.never("gate_lower_bound")?;
    }
    let [heads, dim, conv_kernel] = linear_sizes(fields, &linear)?;
    let decay_bound = if k3 { Some(linear.negative("gate_lower_bound", -5.0)?) } else { None };
    let full_gate = k3 && linear.flag(&["use_full_rank_gate"], false)?;
    let layers = read_layers(fields, &linear, 1)?;
    let mut mla = read_mla(fields, LATENT_EPS)?;
    let mut moe = read_moe(fields, &layers)?;
    if k3 {
        mla.gated = fields.flag(&["mla_use_output_gate"], false)?;
        if let Some(moe) = &mut moe {
            moe.latent = latent_experts(fields)?;
        }
    }
    ModelConfig {
        family,
        vocabulary: fields.size(&["vocab_size"])?,
        hidden: fields.size(&["hidden_size"])?,
        layers,
        kda: Kda { heads, dim, conv_kernel, decay_bound, full_gate },
        mla,
        dense_inner: fields.size(&["intermediate_size"])?,
        moe,
        activation: if k3 { situ(fields)? } else { Activation::Swiglu },
        residual: match fields.optional_size(&["attn_res_block_size"])? {
            Some(block) if k3 => Residual::Blocks { block },
            _ => Residual::Sum,
        },
        mtp: has_draft_layer(fields)?.then_some(Mtp { reads: MtpReads::BeforeNorm, share_index: false }),
        rms_eps: fields.number(&["rms_norm_eps"], 1e-5)?,
        context: fields.size(&["model_max_length", "max_position_embeddings"])?,
        eos: fields.tokens("eos_token_id")?,
        bos: fields.tokens("bos_token_id")?.first().copied(),
        tied: fields.flag(&["tie_word_embeddings"], false)?,
    }
    .checked()
}

fn latent_experts(fields: &Fields) -> Result<Option<LatentExperts>, Error> {
    let normed = fields.flag(&["latent_moe_use_norm"], false)?;
    let width = fields.optional_size(&["routed_expert_hidden_size"])?;
    Ok(width.map(|width| LatentExperts { width, normed }))
}

fn situ(fields: &Fields) -> Result<Activation, Error> {
    let beta = fields.number(&["activation_situ_beta"], 1.0)?;
    let linear = match fields.find(&["activation_situ_linear_beta"]) {
        Some(_) => Some(fields.number(&["activation_situ_linear_beta"], 1.0)?),
        None => None,
    };
    Ok(Activation::Situ { beta, linear })
}
