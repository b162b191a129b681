use std::path::PathBuf;

/// Why a config can not be served. All of these are faults of the model folder: trying again changes nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The config file can not be read.
    #[error("{path}: {source}", path = path.display())]
    Unreadable {
        /// The file asked for.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The config is not a JSON object.
    #[error("config.json: {0}")]
    Json(#[from] serde_json::Error),
    /// A field is absent and has no default.
    #[error("config.json: {field} is missing")]
    Missing {
        /// Name of the field.
        field: &'static str,
    },
    /// A field has a value that this build does not serve.
    #[error("config.json: {field} is {value}: {reason}")]
    Unsupported {
        /// Name of the field.
        field: &'static str,
        /// The value found, as JSON.
        value: String,
        /// What would be served.
        reason: String,
    },
    /// No alternative of a weight is complete in the checkpoint.
    #[error("weight {weight}: tensor {tensor} is missing")]
    TensorMissing {
        /// The weight being assembled.
        weight: String,
        /// The first name of the first alternative that is absent.
        tensor: String,
    },
}
