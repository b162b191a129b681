//! The tokenizer that a checkpoint brings along.

use serde_json::{Value, json};
use tokenizers::Tokenizer;
use tokenizers::decoders::DecoderWrapper;

use crate::error::Error;

/// A `tokenizer.json`.
pub(super) struct Checkpoint {
    whole: Tokenizer,
    /// The same without its added tokens: text can not spell one.
    plain: Tokenizer,
}

impl Checkpoint {
    pub(super) fn from_json(json: &str) -> Result<Self, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::Decode(error.to_string());
        let whole = Tokenizer::from_bytes(json).map_err(|error| failed(&error))?;
        let mut value: Value = serde_json::from_str(json).map_err(|error| failed(&error))?;
        value["added_tokens"] = json!([]);
        let plain = Tokenizer::from_bytes(value.to_string()).map_err(|error| failed(&error))?;
        Ok(Self { whole, plain })
    }

    /// Special tokens in `text` count.
    pub(super) fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, Error> {
        ids(&self.whole, text, add_special_tokens)
    }

    /// Special tokens in `text` are text.
    pub(super) fn encode_plain(&self, text: &str) -> Result<Vec<u32>, Error> {
        ids(&self.plain, text, false)
    }

    /// The added token of this name.
    pub(super) fn marker(&self, name: &str) -> Option<u32> {
        let id = self.whole.token_to_id(name)?;
        self.whole.get_added_tokens_decoder().contains_key(&id).then_some(id)
    }

    /// Names of all added tokens.
    pub(super) fn markers(&self) -> Vec<String> {
        self.whole.get_added_tokens_decoder().values().map(|token| token.content.clone()).collect()
    }

    /// Whether text is nothing but the tokens' bytes in a row.
    pub(super) fn joins_bytes(&self) -> bool {
        matches!(self.whole.get_decoder(), Some(DecoderWrapper::ByteLevel(_)))
    }

    pub(super) fn outside(&self) -> &Tokenizer {
        &self.whole
    }
}

fn ids(tokenizer: &Tokenizer, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, Error> {
    let encoding =
        tokenizer.encode_fast(text, add_special_tokens).map_err(|error| Error::Encode(error.to_string()))?;
    Ok(encoding.get_ids().to_vec())
}
