//! The checkpoint's tokenizer: text to ids, and what bytes an id stands for.

mod table;

use std::path::Path;
use std::sync::Arc;

use tokenizers::decoders::DecoderWrapper;

use crate::decoder::Decoder;
use crate::error::{Error, read};
use table::ByteTable;

/// The tokenizer of one checkpoint (`tokenizer.json`). Cheap to clone.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

struct Inner {
    tokenizer: tokenizers::Tokenizer,
    table: ByteTable,
    joins_bytes: bool,
}

impl Tokenizer {
    /// Reads `tokenizer.json` in `folder`.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let path = folder.join("tokenizer.json");
        Self::from_json(&read(&path)?).map_err(|error| match error {
            Error::Decode(why) => Error::Malformed { path, why },
            other => other,
        })
    }

    /// From the text of a `tokenizer.json`.
    pub fn from_json(json: &str) -> Result<Self, Error> {
        let tokenizer =
            tokenizers::Tokenizer::from_bytes(json).map_err(|error| Error::Decode(error.to_string()))?;
        let joins_bytes = matches!(tokenizer.get_decoder(), Some(DecoderWrapper::ByteLevel(_)));
        let table = ByteTable::build(&tokenizer, joins_bytes);
        Ok(Self { inner: Arc::new(Inner { tokenizer, table, joins_bytes }) })
    }

    /// Token ids of a plain prompt, with whatever the tokenizer itself puts around it (for example a begin token).
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Error> {
        self.ids(text, true)
    }

    /// Token ids of a rendered chat: the template wrote every special token already.
    pub fn encode_rendered(&self, text: &str) -> Result<Vec<u32>, Error> {
        self.ids(text, false)
    }

    /// One past the largest id.
    pub fn vocabulary_size(&self) -> u32 {
        self.inner.table.size()
    }

    /// The bytes that `id` stands for, special tokens by their name; they need not be whole characters. Empty for
    /// an id without a token.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.inner.table.bytes(id)
    }

    /// Bytes of the longest token: no text of more than `n` times as many becomes fewer than `n` tokens.
    pub fn longest_token_bytes(&self) -> usize {
        self.inner.table.longest()
    }

    /// The text of `ids`, special tokens left out, broken characters as U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> Result<String, Error> {
        self.inner.tokenizer.decode(ids, true).map_err(|error| Error::Decode(error.to_string()))
    }

    /// A fresh decoder for one generation.
    pub fn decoder(&self) -> Decoder {
        Decoder::new(self.clone())
    }

    /// Bytes that `id` adds to the text, when the text is nothing but the tokens' bytes in a row.
    pub(crate) fn text_bytes(&self, id: u32) -> &[u8] {
        if self.inner.table.is_special(id) { &[] } else { self.token_bytes(id) }
    }

    pub(crate) fn joins_bytes(&self) -> bool {
        self.inner.joins_bytes
    }

    pub(crate) fn outside(&self) -> &tokenizers::Tokenizer {
        &self.inner.tokenizer
    }

    fn ids(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, Error> {
        let encoding = self
            .inner
            .tokenizer
            .encode_fast(text, add_special_tokens)
            .map_err(|error| Error::Encode(error.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("vocabulary_size", &self.vocabulary_size()).finish_non_exhaustive()
    }
}
