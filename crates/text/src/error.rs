//! What can go wrong between text and tokens.

use std::path::{Path, PathBuf};

/// A fault of this room. [`Error::Messages`] and [`Error::Refused`] are the client's fault, the others are the
/// checkpoint's.
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
    /// One field of the conversation or its options, by the name that OpenAI's API has for it.
    #[error("{field}: {why}")]
    Refused { field: String, why: String },
    #[error("cannot tokenize: {0}")]
    Encode(String),
    #[error("cannot detokenize: {0}")]
    Decode(String),
    #[error("token id {id} is not in the vocabulary of {size}")]
    UnknownToken { id: u32, size: u32 },
}

impl Error {
    pub(crate) fn malformed(path: &Path, why: impl std::fmt::Display) -> Self {
        Self::Malformed { path: path.to_owned(), why: why.to_string() }
    }

    pub(crate) fn refused(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Refused { field: field.into(), why: why.into() }
    }
}

/// Reads a whole text file, naming it when that fails.
pub(crate) fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })
}
