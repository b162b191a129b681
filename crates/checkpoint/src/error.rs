use std::path::PathBuf;

/// Why a checkpoint cannot be loaded. Except for [`Error::Unreadable`] and [`Error::Device`], the folder is at fault and
/// trying again changes nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system cannot read a file; another try may.
    #[error("{path}: {source}", path = path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// A file is not what its format says.
    #[error("{path}: {why}", path = path.display())]
    File { path: PathBuf, why: String },
    /// A tensor is not what the file's header or the model's config says.
    #[error("{path}: tensor {tensor}: {why}", path = path.display())]
    Tensor { path: PathBuf, tensor: String, why: String },
    /// The config is not served, or a tensor that it needs is missing.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// The device refused a weight; a device with more room may take it.
    #[error("weight {weight}: {source}")]
    Device { weight: String, source: pjrt::Error },
}
