//! Text to ids, and what bytes an id stands for.

mod builtin;
mod checkpoint;
mod table;

use std::path::Path;
use std::sync::Arc;

use crate::decoder::Decoder;
use crate::error::{Error, read};
use crate::family::{Facts, Family};
use crate::prompt::{Prompt, Segment};
use builtin::Builtin;
use checkpoint::Checkpoint;
use table::ByteTable;

/// The tokenizer of one checkpoint. Cheap to clone.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

struct Inner {
    source: Source,
    table: ByteTable,
    /// Token ids of the model, some of which may have no token.
    size: u32,
    family: Option<Family>,
}

enum Source {
    Checkpoint(Box<Checkpoint>),
    Builtin(Builtin),
}

impl Tokenizer {
    /// Reads `tokenizer.json` in `folder`; where there is none, the family that `config.json` names has its
    /// vocabulary built in.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let facts = Facts::read(folder)?;
        let path = folder.join("tokenizer.json");
        match facts.family {
            Some(family) if !path.exists() => Self::builtin(family, facts.vocabulary),
            Some(_) | None => Self::of_checkpoint(&read(&path)?, facts).map_err(|error| match error {
                Error::Decode(why) => Error::Malformed { path, why },
                other => other,
            }),
        }
    }

    /// From the text of a `tokenizer.json`.
    pub fn from_json(json: &str) -> Result<Self, Error> {
        Self::of_checkpoint(json, Facts::default())
    }

    /// A family's own vocabulary. `vocabulary`: rows of the model's embedding; those past the last token have none.
    pub fn builtin(family: Family, vocabulary: Option<u32>) -> Result<Self, Error> {
        let builtin = Builtin::new(family)?;
        let table = builtin.table();
        let size = vocabulary.unwrap_or_else(|| table.size());
        if size < table.size() {
            let why = format!("{} has {} tokens, vocab_size is {size}", family.encoding(), table.size());
            return Err(Error::Decode(why));
        }
        let inner = Inner { source: Source::Builtin(builtin), table, size, family: Some(family) };
        Ok(Self { inner: Arc::new(inner) })
    }

    fn of_checkpoint(json: &str, facts: Facts) -> Result<Self, Error> {
        let checkpoint = Checkpoint::from_json(json)?;
        let has = |name: &&str| checkpoint.marker(name).is_some();
        let family = facts.family.filter(|family| family.markers().iter().chain(family.turns()).all(has));
        let visible = family.map_or(&[][..], Family::markers);
        let table = ByteTable::of_checkpoint(checkpoint.outside(), checkpoint.joins_bytes(), visible);
        let size = facts.vocabulary.unwrap_or(0).max(table.size());
        let source = Source::Checkpoint(Box::new(checkpoint));
        Ok(Self { inner: Arc::new(Inner { source, table, size, family }) })
    }

    /// Token ids of a plain prompt, with whatever the tokenizer itself puts around it (for example a begin token).
    /// Special tokens may be written by their name.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Error> {
        match &self.inner.source {
            Source::Checkpoint(checkpoint) => checkpoint.encode(text, true),
            Source::Builtin(builtin) => Ok(builtin.encode(text)),
        }
    }

    /// Token ids of text in which nothing is a special token.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>, Error> {
        match &self.inner.source {
            Source::Checkpoint(checkpoint) => checkpoint.encode_plain(text),
            Source::Builtin(builtin) => Ok(builtin.encode_plain(text)),
        }
    }

    /// Token ids of a rendered conversation: the template wrote every special token already.
    pub fn encode_prompt(&self, prompt: &Prompt) -> Result<Vec<u32>, Error> {
        let mut ids = Vec::new();
        for segment in prompt.segments() {
            match segment {
                Segment::Text(text) => ids.extend(self.encode_plain(text)?),
                Segment::Template(text) => ids.extend(self.encode_template(text)?),
                Segment::Marker(name) => ids.push(
                    self.marker(name).ok_or_else(|| Error::Encode(format!("there is no token {name}")))?,
                ),
            }
        }
        Ok(ids)
    }

    /// The special token of this name.
    pub fn marker(&self, name: &str) -> Option<u32> {
        match &self.inner.source {
            Source::Checkpoint(checkpoint) => checkpoint.marker(name),
            Source::Builtin(builtin) => builtin.marker(name),
        }
    }

    /// The family whose chat format this tokenizer has all tokens for.
    pub fn family(&self) -> Option<Family> {
        self.inner.family
    }

    /// Tokens that end an answer by the family's rules.
    pub fn end_tokens(&self) -> Vec<u32> {
        let ends = self.inner.family.map_or(&[][..], Family::ends);
        ends.iter().filter_map(|name| self.marker(name)).collect()
    }

    /// One past the largest id.
    pub fn vocabulary_size(&self) -> u32 {
        self.inner.size
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
        ids.iter().try_for_each(|&id| self.check(id))?;
        match &self.inner.source {
            Source::Checkpoint(checkpoint) => {
                checkpoint.outside().decode(ids, true).map_err(|error| Error::Decode(error.to_string()))
            }
            Source::Builtin(_) => {
                let bytes: Vec<u8> = ids.iter().flat_map(|&id| self.text_bytes(id)).copied().collect();
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
        }
    }

    /// A fresh decoder for one generation.
    pub fn decoder(&self) -> Decoder {
        Decoder::new(self.clone())
    }

    /// Names of the special tokens.
    pub(crate) fn markers(&self) -> Vec<String> {
        match &self.inner.source {
            Source::Checkpoint(checkpoint) => checkpoint.markers(),
            Source::Builtin(builtin) => builtin.markers(),
        }
    }

    /// Refuses an id that the model does not have.
    pub(crate) fn check(&self, id: u32) -> Result<(), Error> {
        let size = self.inner.size;
        if id < size { Ok(()) } else { Err(Error::UnknownToken { id, size }) }
    }

    /// Bytes that `id` adds to the text, when the text is nothing but the tokens' bytes in a row.
    pub(crate) fn text_bytes(&self, id: u32) -> &[u8] {
        if self.inner.table.is_special(id) { &[] } else { self.token_bytes(id) }
    }

    /// The `tokenizers` crate's own, where text is more than the tokens' bytes in a row.
    pub(crate) fn window(&self) -> Option<&tokenizers::Tokenizer> {
        match &self.inner.source {
            Source::Checkpoint(checkpoint) if !checkpoint.joins_bytes() => Some(checkpoint.outside()),
            Source::Checkpoint(_) | Source::Builtin(_) => None,
        }
    }

    fn encode_template(&self, text: &str) -> Result<Vec<u32>, Error> {
        match &self.inner.source {
            Source::Checkpoint(checkpoint) => checkpoint.encode(text, false),
            Source::Builtin(builtin) => Ok(builtin.encode(text)),
        }
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocabulary_size", &self.vocabulary_size())
            .field("family", &self.inner.family)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
