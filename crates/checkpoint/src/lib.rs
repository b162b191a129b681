//! Safetensors shards to device weights: read, convert, upload, streaming.
//!
//! `engine` opens a model folder here and uploads what a program names as its weights. This room asks `model` what the
//! config says and how each weight is cut from named tensors, and `pjrt` to hold the result. A folder is an input like
//! any other: a header that lies about its tensors is refused by file and tensor, before anything of the size it claims
//! is allocated. The host never holds much more than one weight.

mod assemble;
mod digest;
mod error;
mod folder;
mod header;
mod upload;

use std::path::Path;

use model::ModelConfig;
use model::weights::{WeightSpec, weights};

pub use digest::Digest;
pub use error::Error;
pub use upload::Progress;

use folder::Folder;

/// A model folder whose config is served and whose tensors are all there, in the right shapes and in formats that can
/// be converted; their values have not been read yet.
#[derive(Debug)]
pub struct Checkpoint {
    config: ModelConfig,
    weights: Vec<WeightSpec>,
    folder: Folder,
}

impl Checkpoint {
    /// Reads `config.json` and the headers of `model.safetensors`, or of the shards that `model.safetensors.index.json`
    /// names, in `dir`.
    ///
    /// # Errors
    /// Everything that is wrong with the folder short of the tensors' values: a tensor that the model needs and the
    /// folder lacks, one that it does not need, one of another shape, a file shorter or longer than its header says.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let config = ModelConfig::from_dir(dir)?;
        let weights = weights(&config);
        let folder = Folder::open(dir)?;
        assemble::check(&folder, &weights)?;
        Ok(Self { config, weights, folder })
    }

    /// What the config says the model is.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Every weight of the model, in the order programs take them.
    pub fn weights(&self) -> &[WeightSpec] {
        &self.weights
    }

    /// The values of one weight as f32, row-major.
    ///
    /// # Errors
    /// A file that cannot be read, and a value that is not finite, by tensor and position.
    pub fn assemble(&self, weight: &WeightSpec) -> Result<Vec<f32>, Error> {
        let mut values = vec![0.0; weight.elements()];
        assemble::fill(&self.folder, weight, &mut values)?;
        Ok(values)
    }

    /// Names the values of all tensors: equal for equal tensors, however they are spread over shards. Reads every byte.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn digest(&self) -> Result<Digest, Error> {
        digest::digest(&self.folder)
    }
}
