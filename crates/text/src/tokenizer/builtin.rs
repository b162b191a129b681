//! The vocabularies of families, from the crate `tiktoken`.

use std::collections::HashMap;

use tiktoken::CoreBpe;

use super::table::ByteTable;
use crate::error::Error;
use crate::family::Family;

/// Kimi's own tokenizer cuts a text into pieces of at most so many characters first (moonshotai/Kimi-K3,
/// `tokenization_kimi.py`)...
const KIMI_PIECE: usize = 400_000;
/// ... and those where more than so many are all white space, or all not.
const KIMI_RUN: usize = 25_000;

/// A built-in vocabulary.
pub(super) struct Builtin {
    family: Family,
    bpe: &'static CoreBpe,
    specials: HashMap<String, u32>,
}

impl Builtin {
    pub(super) fn new(family: Family) -> Result<Self, Error> {
        let name = family.encoding();
        let bpe = tiktoken::get_encoding(name)
            .ok_or_else(|| Error::Decode(format!("there is no built-in vocabulary {name}")))?;
        let first = u32::try_from(bpe.vocab_size()).unwrap_or(u32::MAX);
        let mut specials = HashMap::new();
        // Ids between special tokens may be free.
        let mut id = first;
        while specials.len() < bpe.num_special_tokens() {
            let name = bpe.decode(&[id]);
            if !name.is_empty() {
                specials.insert(String::from_utf8_lossy(&name).into_owned(), id);
            }
            id += 1;
        }
        Ok(Self { family, bpe, specials })
    }

    /// Bytes of all tokens, special ones by their name.
    pub(super) fn table(&self) -> ByteTable {
        let size = self.specials.values().max().map_or(0, |last| last + 1);
        let first = u32::try_from(self.bpe.vocab_size()).unwrap_or(u32::MAX);
        let visible: Vec<u32> = self.family.markers().iter().filter_map(|&name| self.marker(name)).collect();
        let mut table = ByteTable::new();
        for id in 0..size {
            table.push(&self.bpe.decode(&[id]), id >= first && !visible.contains(&id));
        }
        table
    }

    /// Special tokens in `text` count.
    pub(super) fn encode(&self, text: &str) -> Vec<u32> {
        self.pieces(text).into_iter().flat_map(|piece| self.bpe.encode_with_special_tokens(piece)).collect()
    }

    /// Special tokens in `text` are text.
    pub(super) fn encode_plain(&self, text: &str) -> Vec<u32> {
        self.pieces(text).into_iter().flat_map(|piece| self.bpe.encode(piece)).collect()
    }

    /// The special token of this name.
    pub(super) fn marker(&self, name: &str) -> Option<u32> {
        self.specials.get(name).copied()
    }

    /// Names of all special tokens.
    pub(super) fn markers(&self) -> Vec<String> {
        self.specials.keys().cloned().collect()
    }

    fn pieces<'t>(&self, text: &'t str) -> Vec<&'t str> {
        match self.family {
            Family::KimiK3 => pieces(text, KIMI_PIECE, KIMI_RUN),
            Family::Glm5Next => vec![text],
        }
    }
}

/// Cuts `text` after every `most` characters, and every run of white space or of its opposite after `run`.
fn pieces(text: &str, most: usize, run: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let (mut since_cut, mut in_run, mut space) = (0, 0, None);
    for (at, c) in text.char_indices() {
        if since_cut == most {
            pieces.push(&text[start..at]);
            (start, since_cut, in_run, space) = (at, 0, 0, None);
        }
        since_cut += 1;
        if space.replace(is_space(c)) != Some(is_space(c)) {
            in_run = 1;
            continue;
        }
        in_run += 1;
        if in_run > run {
            pieces.push(&text[start..at]);
            (start, in_run) = (at, 1);
        }
    }
    pieces.push(&text[start..]);
    pieces
}

/// As Python's `str.isspace`, which also has the four separators of ASCII.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

#[cfg(test)]
mod tests;
