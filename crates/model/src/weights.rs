//! The arrays a program takes as weights, and how each is cut from a checkpoint's named tensors.
//!
//! Prefill and decode programs name the same weights, so one upload serves both. Rows that share an input are joined
//! into one matrix, layers of a repeated group are stacked along a new leading axis. Checkpoints come in several namings
//! (fused as `transformers` keeps them in memory, split as published); `Source::Either` lists them.

mod ffn;
mod formats;
mod kda;
mod mla;
mod part;
mod residual;
mod source;

pub use formats::{Encoding, Float, Formats, Held, MXFP4_GROUP, OwnTables};
pub use source::{Piece, Source};

use crate::{Attention, Error, Ffn, Fold, Layer, ModelConfig, Place};
use part::{Part, tensor};

/// One array that programs take as a weight: row-major, matrices stored `[out, in]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightSpec {
    /// Unique within a model, e.g. `layers.0.kda.project` or `group.1.moe.out`.
    pub name: String,
    /// Axis lengths of the assembled array.
    pub dims: Vec<usize>,
    /// The axis along which a mesh of several devices cuts it; none where every device has the whole.
    pub cut: Option<usize>,
    /// How its values are held on the device.
    pub encoding: Encoding,
    /// How it is put together from the checkpoint's tensors.
    pub source: Source,
}

impl WeightSpec {
    /// Number of values.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// Values of one matrix: the last two axes.
    #[must_use]
    pub fn matrix(&self) -> usize {
        self.dims.iter().rev().take(2).product()
    }

    /// Visits, in order, the runs of checkpoint values whose concatenation is this weight's source.
    ///
    /// `exists` says whether the checkpoint has a tensor of that name.
    ///
    /// # Errors
    /// [`Error::TensorMissing`] when no alternative is complete. Nothing has been visited then.
    pub fn pieces(
        &self,
        exists: &dyn Fn(&str) -> bool,
        visit: &mut dyn FnMut(Piece<'_>),
    ) -> Result<(), Error> {
        self.source.check(&self.name, exists)?;
        self.source.visit(0, self.source.elements(), exists, visit);
        Ok(())
    }
}

/// Every weight of the model, in the order programs take them.
#[must_use]
pub fn weights(config: &ModelConfig, formats: &Formats) -> Vec<WeightSpec> {
    let matrix = [config.vocabulary, config.hidden];
    let embedding = tensor("model.embed_tokens.weight", &matrix);
    let head = if config.tied { embedding.clone() } else { tensor("lm_head.weight", &matrix) };
    let mut all = Vec::new();
    formats.encode(Part::table("embedding", &matrix, embedding).cut(0), "", None, &mut all);
    let fold = config.fold();
    for place in fold.places() {
        at_place(config, formats, &fold, place, &mut all);
    }
    let norm = tensor("model.norm.weight", &[config.hidden]);
    let mut last = residual::output(config);
    last.push(Part::vector("final_norm", &[config.hidden], norm));
    last.push(Part::table("head", &matrix, head).cut(0));
    for part in last {
        formats.encode(part, "", None, &mut all);
    }
    if config.mtp.is_some() {
        for part in draft_layer(config, formats.draft) {
            formats.encode(part, "mtp.", None, &mut all);
        }
    }
    all
}

/// Whether a tensor of the checkpoint belongs to a part of the model that no program runs: the vision tower, a draft layer
/// that is left out, or residual weights of a draft layer, whose residual is a plain sum.
#[must_use]
pub fn is_unused(config: &ModelConfig, tensor: &str) -> bool {
    const VISION: [&str; 5] =
        ["vision_tower.", "vision_model.", "model.visual.", "multi_modal_projector.", "mm_projector."];
    let drafts = format!("model.layers.{}.", config.layers.len());
    let residual = ["self_attention_res", "mlp_res", "hc_"];
    match tensor.strip_prefix(&drafts) {
        Some(own) => config.mtp.is_none() || residual.iter().any(|part| own.starts_with(part)),
        None => VISION.iter().any(|part| tensor.starts_with(part)),
    }
}

/// The weights of one body: those of a layer, or of a member of the repeated group stacked over the repetitions.
fn at_place(config: &ModelConfig, formats: &Formats, fold: &Fold, place: Place, all: &mut Vec<WeightSpec>) {
    let layers = fold.layers_at(place);
    let mut stacks: Vec<std::vec::IntoIter<Part>> =
        layers.iter().map(|&layer| layer_parts(config, layer).into_iter()).collect();
    let repeats = matches!(place, Place::Repeated(_)).then_some(layers.len());
    loop {
        let column: Vec<Part> = stacks.iter_mut().filter_map(Iterator::next).collect();
        let Some(part) = Part::stacked(column) else { return };
        formats.encode(part, &format!("{place}."), repeats, all);
    }
}

fn layer_parts(config: &ModelConfig, layer: usize) -> Vec<Part> {
    let at = format!("model.layers.{layer}");
    let mut parts = residual::halves(config, &at);
    block(config, config.layers[layer], &at, &mut parts);
    parts
}

/// A layer without what joins it to its neighbours.
fn block(config: &ModelConfig, kind: Layer, at: &str, parts: &mut Vec<Part>) {
    let norm = |name: &str| tensor(&format!("{at}.{name}.weight"), &[config.hidden]);
    parts.push(Part::vector("attention_norm", &[config.hidden], norm("input_layernorm")));
    match kind.attention {
        Attention::Kda => kda::parts(config, &format!("{at}.self_attn"), parts),
        Attention::Mla => mla::parts(config, &format!("{at}.self_attn"), parts),
    }
    parts.push(Part::vector("ffn_norm", &[config.hidden], norm("post_attention_layernorm")));
    match (kind.ffn, &config.moe) {
        (Ffn::Moe, Some(moe)) => ffn::experts(moe, config.hidden, at, parts),
        _ => ffn::dense(at, config.dense_inner, config.hidden, parts),
    }
}

/// The draft layer: a projection of the next token's embedding and of a hidden vector, then one ordinary block.
fn draft_layer(config: &ModelConfig, own: OwnTables) -> Vec<Part> {
    let (at, hidden) = (format!("model.layers.{}", config.layers.len()), config.hidden);
    let norm = |name: &str| tensor(&format!("{at}.{name}.weight"), &[hidden]);
    let project = tensor(&format!("{at}.eh_proj.weight"), &[hidden, 2 * hidden]);
    let mut parts = vec![
        Part::vector("embedding_norm", &[hidden], norm("enorm")),
        Part::vector("hidden_norm", &[hidden], norm("hnorm")),
        Part::matrix("project", &[hidden, 2 * hidden], project),
        Part::vector("output_norm", &[hidden], norm("shared_head.norm")),
    ];
    let matrix = [config.vocabulary, hidden];
    for (is_own, role, name) in
        [(own.embedding, "embedding", "embed_tokens"), (own.head, "head", "shared_head.head")]
    {
        if is_own {
            parts.push(Part::table(role, &matrix, tensor(&format!("{at}.{name}.weight"), &matrix)).cut(0));
        }
    }
    block(config, config.draft_layer(), &at, &mut parts);
    parts
}

#[cfg(test)]
mod tests;
