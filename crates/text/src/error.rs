//! What can go wrong between text and tokens.

use std::path::{Path, PathBuf};

/// A fault of this room. [`Error::Messages`] is the client's fault, the others are the checkpoint's.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path} is not valid: {why}")]
    Malformed { path: PathBuf, why: String },
    #[error("the checkpoint has no chat template")]
    NoChatTemplate,
    /// The template refused this conversation, in its own words.
    #[error("messages: {0}")]
    Messages(String),
    #[error("cannot tokenize: {0}")]
    Encode(String),
    #[error("cannot detokenize: {0}")]
    Decode(String),
}

impl Error {
    pub(crate) fn malformed(path: &Path, why: impl std::fmt::Display) -> Self {
        Self::Malformed { path: path.to_owned(), why: why.to_string() }
    }
}

/// Reads a whole text file, naming it when that fails.
pub(crate) fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })
}
