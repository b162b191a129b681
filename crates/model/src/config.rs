use std::path::Path;

use crate::{Error, Fold, StateShape, fold};

mod fields;
mod kimi_linear;

use fields::Fields;

/// What a checkpoint's config says the model is, checked: every value here is one that programs serve.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// The family, as `model_type` names it.
    pub name: String,
    /// Number of token ids.
    pub vocabulary: usize,
    /// Channels of the residual stream.
    pub hidden: usize,
    /// The layers in order.
    pub layers: Vec<Layer>,
    /// Shape of the recurrent attention layers.
    pub kda: Kda,
    /// Shape of the latent attention layers.
    pub mla: Mla,
    /// Inner channels of a dense feed-forward layer.
    pub dense_inner: usize,
    /// Shape of the mixture-of-experts layers; present if any layer is one.
    pub moe: Option<Moe>,
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

/// One layer: how tokens attend, then what each does alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layer {
    /// First half.
    pub attention: Attention,
    /// Second half.
    pub ffn: Ffn,
}

/// How tokens attend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attention {
    /// Kimi delta attention: a recurrent matrix per head.
    Kda,
    /// Multi-head latent attention: one cached latent a token.
    Mla,
}

/// What each token does alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ffn {
    /// One gated network.
    Dense,
    /// Routed experts beside shared ones.
    Moe,
}

/// Shape of Kimi delta attention; query, key and value have the same heads and channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kda {
    /// Heads.
    pub heads: usize,
    /// Channels of a head.
    pub dim: usize,
    /// Tokens the short convolution sees, the current one included.
    pub conv_kernel: usize,
}

impl Kda {
    /// Channels of all heads together.
    #[must_use]
    pub fn width(&self) -> usize {
        self.heads * self.dim
    }
}

/// Shape of multi-head latent attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mla {
    /// Heads.
    pub heads: usize,
    /// Channels of the compressed key-value.
    pub kv_lora: usize,
    /// Channels of the key part that all heads share; this family does not rotate them.
    pub rope: usize,
    /// Channels of the key part each head expands for itself.
    pub nope: usize,
    /// Channels of a head's value.
    pub value: usize,
    /// Channels of the compressed query, where queries are compressed.
    pub q_lora: Option<usize>,
}

impl Mla {
    /// Channels of a cached latent.
    #[must_use]
    pub fn latent_width(&self) -> usize {
        self.kv_lora + self.rope
    }

    /// Channels of a head's query and key.
    #[must_use]
    pub fn query_width(&self) -> usize {
        self.nope + self.rope
    }
}

/// Shape of a mixture-of-experts layer. Experts are chosen by sigmoid score plus a learnt bias and weighed by score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moe {
    /// Routed experts.
    pub experts: usize,
    /// Experts a token goes to.
    pub top_k: usize,
    /// Shared experts, run as one network of `shared * inner` channels; 0 when there is none.
    pub shared: usize,
    /// Inner channels of one expert.
    pub inner: usize,
    /// Factor on the routed weights.
    pub scale: f64,
    /// Whether the chosen scores are divided by their sum.
    pub renormalise: bool,
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

    /// Reads a config in either naming: as `transformers` writes it, or as published with `linear_attn_config`.
    ///
    /// # Errors
    /// When a field is missing or has a value that is not served, by the field's name.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        kimi_linear::read(&Fields::new(text)?)
    }

    /// Shape of what a sequence keeps between steps.
    #[must_use]
    pub fn state(&self) -> StateShape {
        let count = |kind| self.layers.iter().filter(|layer| layer.attention == kind).count();
        StateShape {
            latent_layers: count(Attention::Mla),
            latent_width: self.mla.latent_width(),
            recurrent_layers: count(Attention::Kda),
            heads: self.kda.heads,
            key_dim: self.kda.dim,
            value_dim: self.kda.dim,
            tail_rows: self.kda.conv_kernel - 1,
            tail_width: self.kda.width(),
            vocabulary: self.vocabulary,
        }
    }

    /// How the layers are arranged as code.
    #[must_use]
    pub fn fold(&self) -> Fold {
        fold(&self.layers)
    }
}

#[cfg(test)]
mod tests;
