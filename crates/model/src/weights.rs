//! The arrays a program takes as weights, and how each is cut from a checkpoint's named tensors.
//!
//! Prefill and decode programs name the same weights, so one upload serves both. Rows that share an input are joined
//! into one matrix, layers of a repeated group are stacked along a new leading axis. Checkpoints come in two namings
//! (fused as `transformers` keeps them in memory, split as published); `Source::Either` lists both.

mod kimi_linear;
mod source;

pub use source::{Piece, Source};

use crate::{Error, ModelConfig};

/// One array that programs take as a weight. Values are f32, row-major, matrices stored `[out, in]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightSpec {
    /// Unique within a model, e.g. `layers.0.kda.project` or `group.1.moe.out`.
    pub name: String,
    /// Axis lengths of the assembled array.
    pub dims: Vec<usize>,
    /// How it is put together from the checkpoint's tensors.
    pub source: Source,
}

impl WeightSpec {
    /// Number of values.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// Visits, in order, the runs of checkpoint values whose concatenation is this weight.
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
        self.source.visit(0, self.elements(), exists, visit);
        Ok(())
    }
}

/// Every weight of the model, in the order programs take them.
#[must_use]
pub fn weights(config: &ModelConfig) -> Vec<WeightSpec> {
    kimi_linear::weights(config)
}

#[cfg(test)]
mod tests;
