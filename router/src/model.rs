//! The one model that a router serves: what its checkpoint's folder says, and no weights.

use std::path::Path;

use model::ModelConfig;
use text::{ChatTemplate, Tokenizer};

/// Why the checkpoint's folder can not be served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Config(#[from] model::Error),
    #[error(transparent)]
    Text(#[from] text::Error),
    #[error("the model's {field} is {value}, more than a 32-bit number holds")]
    TooLarge { field: &'static str, value: usize },
}

/// A checkpoint as the router sees it.
#[derive(Debug)]
pub struct Model {
    pub name: String,
    pub tokenizer: Tokenizer,
    pub chat: Option<ChatTemplate>,
    /// Rows of the embedding: every id below it is a token.
    pub vocabulary: u32,
    /// Longest prompt and output together, in tokens.
    pub context: u32,
    /// Tokens that end a sequence: by the config, and by the family's rules.
    pub end_tokens: Vec<u32>,
}

impl Model {
    /// Reads config, tokenizer and chat template in `folder`; the model is served as `name`.
    pub fn open(folder: &Path, name: String) -> Result<Self, OpenError> {
        let config = ModelConfig::from_dir(folder)?;
        let narrow = |field, value| u32::try_from(value).map_err(|_| OpenError::TooLarge { field, value });
        let tokenizer = Tokenizer::open(folder)?;
        let chat = match ChatTemplate::open(folder, &tokenizer) {
            Ok(template) => Some(template),
            Err(text::Error::NoChatTemplate) => None,
            Err(error) => return Err(error.into()),
        };
        let mut end_tokens = config.eos;
        end_tokens.extend(tokenizer.end_tokens());
        end_tokens.sort_unstable();
        end_tokens.dedup();
        Ok(Self {
            name,
            tokenizer,
            chat,
            vocabulary: narrow("vocabulary", config.vocabulary)?,
            context: narrow("context", config.context)?,
            end_tokens,
        })
    }
}
