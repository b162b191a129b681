use std::fmt;
use std::path::PathBuf;

/// Why a checkpoint cannot be loaded. Except for [`Error::Unreadable`], [`Error::Read`] and [`Error::Device`], the folder is
/// at fault and trying again changes nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system cannot open or measure a file; another try may.
    #[error("{path}: {source}", path = path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// The operating system cannot read a tensor's bytes; another try may.
    #[error(
        "{path}: tensor {tensor}: read at byte {offset}: {source}; a load changes no file, loading again is safe",
        path = path.display()
    )]
    Read { path: PathBuf, tensor: String, offset: u64, source: std::io::Error },
    /// A file is not what its format says.
    #[error("{path}: {why}", path = path.display())]
    File { path: PathBuf, why: String },
    /// A tensor is not what the file's header or the model's config says.
    #[error("{path}: tensor {tensor}: {why}", path = path.display())]
    Tensor { path: PathBuf, tensor: String, why: String },
    /// More than one thing is wrong with the folder: the first few, and how many more there are.
    #[error("{}", list(first, *more))]
    Several { first: Vec<Error>, more: usize },
    /// The config is not served, or a tensor that it needs is missing.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// The device refused a weight; a device with more room may take it.
    #[error("weight {weight}: {source}")]
    Device { weight: String, source: Box<pjrt::Error> },
}

/// Faults named in full before the rest is only counted.
const NAMED: usize = 5;

impl Error {
    /// One error of all faults; `None` when there are none.
    pub(crate) fn of_all(mut faults: Vec<Self>) -> Option<Self> {
        if faults.len() < 2 {
            return faults.pop();
        }
        let more = faults.len().saturating_sub(NAMED);
        faults.truncate(NAMED);
        Some(Self::Several { first: faults, more })
    }
}

fn list(first: &[Error], more: usize) -> impl fmt::Display {
    let mut text = first.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    if more > 0 {
        text.push_str(&format!("; and {more} more"));
    }
    text
}
