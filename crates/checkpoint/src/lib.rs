//! Safetensors shards to device weights: read, convert, upload, streaming.
//!
//! `engine` opens a model folder here and uploads what a program names as its weights. This room asks `model` what the
//! config says and how each weight is cut from named tensors, and `pjrt` to hold the result. A folder is an input like
//! any other: a header that lies about its tensors is refused by file and tensor, before anything of the size it claims
//! is allocated.
//!
//! A tensor of the model is stored as F32, BF16 or F16; as FP8 e4m3 with block scales; or packed as MXFP4. What tells is its
//! suffix and format, never what it is for. Experts that are all packed stay so; everything else is converted while it is
//! read, block by block, by all cores.

mod assemble;
mod check;
mod decode;
mod digest;
mod error;
mod folder;
#[doc(hidden)]
pub mod fuzz;
mod header;
mod int8;
mod names;
mod plan;
mod quantization;
mod stored;
mod turn;
mod upload;
mod wanted;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use model::ModelConfig;
use model::weights::{Encoding, Formats, WeightSpec, weights};

pub use digest::Digest;
pub use error::Error;
pub use upload::{Progress, SLAB_BYTES, SLABS};
pub use wanted::Wanted;

use assemble::Room;
use folder::Folder;
use int8::Squares;
use plan::Plan;

/// A model folder whose config is served and whose tensors are all there, in the right shapes and in formats that can
/// be converted; their values have not been read yet.
#[derive(Debug)]
pub struct Checkpoint {
    config: ModelConfig,
    formats: Formats,
    weights: Vec<WeightSpec>,
    folder: Folder,
    /// What int8 changed, by weight, of those that have been assembled.
    changed: Mutex<BTreeMap<String, Squares>>,
}

impl Checkpoint {
    /// Reads `config.json` and the headers of `model.safetensors`, or of the shards that `model.safetensors.index.json`
    /// names, in `dir`, and decides how the weights are held.
    ///
    /// # Errors
    /// Everything that is wrong with the folder short of the tensors' values: a quantisation that is not served, a tensor
    /// that the model needs and the folder lacks, one that it does not need, one of another shape or format, codes without
    /// their scales, a file shorter or longer than its header says. Several faults are told together.
    pub fn open(dir: &Path, wanted: &Wanted) -> Result<Self, Error> {
        let path = dir.join("config.json");
        let text = std::fs::read_to_string(&path).map_err(|source| Error::Unreadable { path, source })?;
        let config = ModelConfig::from_json(&text)?;
        quantization::check(&text)?;
        let config = if wanted.drafts { config } else { config.without_mtp() };
        let mut folder = Folder::open(dir)?;
        let formats = check::formats(&folder, &config, wanted);
        let weights = weights(&config, &formats);
        let used = check::check(&folder, &config, &weights)?;
        folder.keep(&used);
        Ok(Self { config, formats, weights, folder, changed: Mutex::default() })
    }

    /// What the config says the model is, without the draft layer if that is not wanted.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// How the weights are held: programs are built for the same.
    pub fn formats(&self) -> &Formats {
        &self.formats
    }

    /// Every weight of the model, in the order programs take them.
    pub fn weights(&self) -> &[WeightSpec] {
        &self.weights
    }

    /// The values of one weight in its encoding, row-major, little endian.
    ///
    /// # Errors
    /// A file that cannot be read, by tensor, shard and offset, and a value that is not finite, by tensor and position.
    pub fn assemble(&self, weight: &WeightSpec) -> Result<Vec<u8>, Error> {
        let plan = Plan::new(&self.folder, weight)?;
        let mut bytes = vec![0; upload::bytes(weight)];
        let squares = assemble::fill(&plan, 0..plan.values, Room { bytes: &mut bytes, scales: &mut [] })?;
        self.converted(weight, squares);
        Ok(bytes)
    }

    /// Names the values of all tensors in use: equal for equal tensors, however they are spread over shards and whatever
    /// their prefixes. Reads every byte.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn digest(&self) -> Result<Digest, Error> {
        digest::digest(&self.folder)
    }

    /// What int8 changed in the weights assembled or uploaded so far: for each role (`kda.project`, `moe.in`), over all
    /// layers, the root mean square of the change relative to that of the values.
    pub fn int8_error(&self) -> Vec<(String, f64)> {
        let changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut roles: BTreeMap<&str, Squares> = BTreeMap::new();
        for (weight, squares) in changed.iter() {
            *roles.entry(role(weight)).or_default() += *squares;
        }
        roles.into_iter().map(|(role, squares)| (role.to_owned(), squares.relative())).collect()
    }

    /// Bytes that the host needs at most while weights are assembled, beside the result: what every core reads, decodes and
    /// gathers at a time.
    pub fn working_bytes(&self) -> usize {
        let row = |weight: &WeightSpec| match weight.encoding {
            Encoding::Int8 => weight.dims.last().copied().unwrap_or(1),
            Encoding::Int8Scales => weight.source.elements() / weight.elements().max(1),
            // A matrix is gathered, perhaps from runs that lie apart, and turned: 2 bytes a value.
            Encoding::Packed | Encoding::PackedScales => weight.matrix() / 6,
            Encoding::Float(_) => 1,
        };
        let longest = self.weights.iter().map(row).max().unwrap_or(1);
        assemble::cores() * assemble::desk_bytes(longest)
    }

    fn converted(&self, weight: &WeightSpec, squares: Squares) {
        if weight.encoding == Encoding::Int8 {
            let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
            changed.insert(weight.name.clone(), squares);
        }
    }
}

/// What a weight is for, in whatever layer: its name less `layers.0.` or `group.0.` and the encoding.
fn role(weight: &str) -> &str {
    let name = weight.strip_suffix(".int8").unwrap_or(weight);
    let layer = name.strip_prefix("layers.").or_else(|| name.strip_prefix("group."));
    layer.and_then(|layer| layer.split_once('.')).map_or(name, |(_, role)| role)
}
