//! Folders made by hand.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use checkpoint::{Checkpoint, Wanted};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::Value;

/// Name to format, shape and bytes.
pub(crate) type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

pub(crate) fn store(path: &Path, tensors: &Tensors) {
    let views = tensors
        .iter()
        .map(|(name, (dtype, dims, bytes))| (name, TensorView::new(*dtype, dims.clone(), bytes).unwrap()));
    std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

/// A folder of one file.
pub(crate) fn folder(config: &Value, tensors: &Tensors) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    store(&dir.path().join("model.safetensors"), tensors);
    dir
}

/// The bytes of every weight.
pub(crate) fn assembled(checkpoint: &Checkpoint) -> Vec<Vec<u8>> {
    checkpoint.weights().iter().map(|weight| checkpoint.assemble(weight).unwrap()).collect()
}

pub(crate) fn open(dir: &Path) -> Checkpoint {
    Checkpoint::open(dir, &Wanted::default()).unwrap()
}

pub(crate) fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|raw| f32::from_le_bytes(raw.try_into().unwrap())).collect()
}
