use std::path::Path;

use serde_json::json;

use crate::{Error, Fold, IndexShape, StateShape, fold};

mod family;
mod fields;
mod glm;
mod kimi;
mod shape;

pub use shape::{
    Activation, Attention, Family, Ffn, Indexer, Kda, LatentExperts, Layer, Mla, Moe, Mtp, MtpReads, Residual,
};

use fields::{Fields, unsupported};

/// What a checkpoint's config says the model is, checked: every value here is one that programs serve.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// The architecture it follows.
    pub family: Family,
    /// Number of token ids.
    pub vocabulary: usize,
    /// Channels of the residual stream.
    pub hidden: usize,
    /// The layers in order; the draft layer is not among them.
    pub layers: Vec<Layer>,
    /// Shape of the recurrent attention layers.
    pub kda: Kda,
    /// Shape of the latent attention layers.
    pub mla: Mla,
    /// Inner channels of a dense feed-forward layer.
    pub dense_inner: usize,
    /// Shape of the mixture-of-experts layers; present if any layer is one.
    pub moe: Option<Moe>,
    /// Activation of every gated network.
    pub activation: Activation,
    /// How layers are joined.
    pub residual: Residual,
    /// The draft layer, where the checkpoint has one.
    pub mtp: Option<Mtp>,
    /// Epsilon of the norms on the residual stream and of KDA's output norm.
    pub rms_eps: f64,
    /// Longest sequence in tokens.
    pub context: usize,
    /// Tokens that end a sequence.
    pub eos: Vec<u32>,
    /// Token that starts a sequence, if the tokenizer uses one.
    pub bos: Option<u32>,
    /// Whether the output matrix is the embedding.
    pub tied: bool,
}

impl ModelConfig {
    /// Reads `config.json` of a model folder.
    ///
    /// # Errors
    /// When the file can not be read, or as [`ModelConfig::from_json`].
    pub fn from_dir(dir: &Path) -> Result<Self, Error> {
        let path = dir.join("config.json");
        let text = std::fs::read_to_string(&path).map_err(|source| Error::Unreadable { path, source })?;
        Self::from_json(&text)
    }

    /// Reads a config of any family, in either naming: as `transformers` writes it, or as published with
    /// `linear_attn_config`; flat, or with the text model under `text_config`.
    ///
    /// # Errors
    /// When a field is missing or has a value that is not served, by the field's name.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let outer = Fields::new(text)?;
        let (_, kind) = outer.find(&["model_type"]).ok_or(Error::Missing { field: "model_type" })?;
        let fields = if outer.find(&["text_config"]).is_some() {
            outer.section("text_config")?
        } else {
            outer.clone()
        };
        match kind.as_str() {
            Some("kimi_linear") => kimi::read(Family::KimiLinear, &fields),
            Some("kimi_k3") => kimi::read(Family::KimiK3, &fields),
            Some("glm5_next" | "glm5_next_text") => glm::read(&fields),
            _ => Err(unsupported("model_type", kind, "only kimi_linear, kimi_k3 and glm5_next are served")),
        }
    }

    /// The same model without its draft layer: nothing of it is loaded, kept or sent then.
    #[must_use]
    pub fn without_mtp(mut self) -> Self {
        self.mtp = None;
        self
    }

    /// Shape of what a sequence keeps between steps. The draft layer's cache is the last of the latent layers.
    #[must_use]
    pub fn state(&self) -> StateShape {
        let count = |kind| self.layers.iter().filter(|layer| layer.attention == kind).count();
        let latent_layers = count(Attention::Mla) + usize::from(self.mtp.is_some());
        StateShape {
            latent_layers,
            latent_width: self.mla.latent_width(),
            recurrent_layers: count(Attention::Kda),
            heads: self.kda.heads,
            key_dim: self.kda.dim,
            value_dim: self.kda.dim,
            tail_rows: self.kda.conv_kernel - 1,
            tail_width: self.kda.width(),
            index: self.mla.indexer.map(|indexer| IndexShape { dim: indexer.dim, pool: indexer.pool }),
            hidden: self.mtp.map(|_| self.hidden),
            vocabulary: self.vocabulary,
        }
    }

    /// The model as one of `devices` devices runs it: its share of the heads and of the inner channels. Experts and tokens
    /// of the vocabulary are counted whole; every device holds its share of their rows.
    ///
    /// # Errors
    /// When a field does not divide, by its name.
    pub fn share(&self, devices: usize) -> Result<Self, Error> {
        let mut own = self.clone();
        let moe = self.moe.as_ref();
        let counts = [
            ("num_heads", self.kda.heads),
            ("num_attention_heads", self.mla.heads),
            ("intermediate_size", self.dense_inner),
            ("vocab_size", self.vocabulary),
            ("num_experts", moe.map_or(0, |moe| moe.experts)),
            ("num_shared_experts", moe.map_or(0, |moe| moe.shared * moe.inner)),
            ("routed_expert_hidden_size", moe.and_then(|moe| moe.latent).map_or(0, |latent| latent.width)),
        ];
        for (field, count) in counts {
            if !count.is_multiple_of(devices) {
                return Err(unsupported(
                    field,
                    &json!(count),
                    &format!("does not divide over {devices} devices"),
                ));
            }
        }
        own.kda.heads /= devices;
        own.mla.heads /= devices;
        own.dense_inner /= devices;
        Ok(own)
    }

    /// What the draft layer's block is: it attends to latents, and has experts if any layer has.
    #[must_use]
    pub fn draft_layer(&self) -> Layer {
        Layer { attention: Attention::Mla, ffn: if self.moe.is_some() { Ffn::Moe } else { Ffn::Dense } }
    }

    /// How the layers are arranged as code.
    #[must_use]
    pub fn fold(&self) -> Fold {
        fold(&self.layers)
    }

    /// Refuses what only all fields together show.
    fn checked(self) -> Result<Self, Error> {
        if let Some(id) = self.eos.iter().find(|&&id| id as usize >= self.vocabulary) {
            return Err(unsupported("eos_token_id", &json!(id), "is not in the vocabulary"));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests;
