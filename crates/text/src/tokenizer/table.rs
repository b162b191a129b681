//! The bytes of every token, side by side in one allocation.

use std::collections::HashMap;

/// What each id stands for.
pub(super) struct ByteTable {
    bytes: Vec<u8>,
    /// Token `id` is `bytes[ends[id - 1]..ends[id]]`.
    ends: Vec<usize>,
    special: Vec<bool>,
    longest: usize,
}

impl ByteTable {
    /// The table without a token.
    pub(super) fn new() -> Self {
        Self { bytes: Vec::new(), ends: Vec::new(), special: Vec::new(), longest: 0 }
    }

    /// `byte_level`: the vocabulary spells bytes as printable characters (GPT-2's table). `visible`: tokens that are
    /// part of the text although the tokenizer calls them special.
    pub(super) fn of_checkpoint(
        tokenizer: &tokenizers::Tokenizer,
        byte_level: bool,
        visible: &[&str],
    ) -> Self {
        let added = tokenizer.get_added_tokens_decoder();
        let size = tokenizer.get_vocab(true).into_values().max().map_or(0, |last| last + 1);
        let spelled = byte_of_char();
        let mut table = Self::new();
        let mut bytes = Vec::new();
        for id in 0..size {
            let special = added.get(&id).is_some_and(|token| token.special);
            let token = tokenizer.id_to_token(id).unwrap_or_default();
            bytes.clear();
            match spelling(&token, special, byte_level) {
                Spelling::Itself => bytes.extend_from_slice(token.as_bytes()),
                Spelling::Bytes => append_bytes(&token, &spelled, &mut bytes),
                Spelling::Piece => append_piece(&token, &mut bytes),
            }
            table.push(&bytes, special && !visible.contains(&token.as_str()));
        }
        table
    }

    /// Adds the next id. `special`: it has a name and no text.
    pub(super) fn push(&mut self, bytes: &[u8], special: bool) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
        self.special.push(special);
        self.longest = self.longest.max(bytes.len());
    }

    pub(super) fn size(&self) -> u32 {
        u32::try_from(self.ends.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    pub(super) fn bytes(&self, id: u32) -> &[u8] {
        let Some(&end) = self.ends.get(id as usize) else {
            return &[];
        };
        let start = id.checked_sub(1).map_or(0, |before| self.ends[before as usize]);
        &self.bytes[start..end]
    }

    pub(super) fn is_special(&self, id: u32) -> bool {
        self.special.get(id as usize).copied().unwrap_or(false)
    }
}

enum Spelling {
    Itself,
    Bytes,
    Piece,
}

fn spelling(token: &str, special: bool, byte_level: bool) -> Spelling {
    match (special, byte_level) {
        (true, _) => Spelling::Itself,
        (false, true) => Spelling::Bytes,
        (false, false) if token.is_ascii() && !token.starts_with("<0x") => Spelling::Itself,
        (false, false) => Spelling::Piece,
    }
}

/// Byte-level tokens; one with a character outside the table stands for itself, as in the `tokenizers` crate.
fn append_bytes(token: &str, spelled: &HashMap<char, u8>, out: &mut Vec<u8>) {
    let before = out.len();
    for c in token.chars() {
        match spelled.get(&c) {
            Some(&byte) => out.push(byte),
            None => {
                out.truncate(before);
                out.extend_from_slice(token.as_bytes());
                return;
            }
        }
    }
}

/// SentencePiece tokens: `<0xE2>` is a byte, U+2581 a space.
fn append_piece(token: &str, out: &mut Vec<u8>) {
    let hex = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    match hex.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
        Some(byte) => out.push(byte),
        None => out.extend_from_slice(token.replace('\u{2581}', " ").as_bytes()),
    }
}

/// GPT-2's byte table, read backwards: printable Latin-1 stands for itself, the other bytes in ascending order for
/// U+0100 and on (openai/gpt-2, `src/encoder.py`).
fn byte_of_char() -> HashMap<char, u8> {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut table = HashMap::new();
    let mut next = 0x100_u32;
    for byte in 0..=u8::MAX {
        let code = if printable(byte) { u32::from(byte) } else { next };
        if !printable(byte) {
            next += 1;
        }
        if let Some(c) = char::from_u32(code) {
            table.insert(c, byte);
        }
    }
    table
}
