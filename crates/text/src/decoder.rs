//! Tokens to text while they arrive: whole characters only, and in the end exactly what decoding at once gives.

use crate::error::Error;
use crate::tokenizer::Tokenizer;

#[cfg(test)]
mod tests;

/// The decoder of one generation.
#[derive(Debug)]
pub struct Decoder {
    tokenizer: Tokenizer,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Byte-level tokens: the text is the tokens' bytes in a row; `pending` is the start of a character whose
    /// rest is not there yet.
    Bytes { pending: Vec<u8> },
    /// Other tokenizers look at neighbours: a short window of ids is decoded again for each token.
    Window { ids: Vec<u32>, prefix: String, prefix_index: usize },
}

impl Decoder {
    pub(crate) fn new(tokenizer: Tokenizer) -> Self {
        let state = match tokenizer.window() {
            None => State::Bytes { pending: Vec::new() },
            Some(_) => State::Window { ids: Vec::new(), prefix: String::new(), prefix_index: 0 },
        };
        Self { tokenizer, state }
    }

    /// The text that `token` completes; none while a character is still open, and for special tokens. An id that the
    /// model does not have is refused.
    pub fn push(&mut self, token: u32) -> Result<Option<String>, Error> {
        self.tokenizer.check(token)?;
        match &mut self.state {
            State::Bytes { pending } => {
                pending.extend_from_slice(self.tokenizer.text_bytes(token));
                let text = take_characters(pending);
                Ok((!text.is_empty()).then_some(text))
            }
            State::Window { ids, prefix, prefix_index } => {
                let Some(outside) = self.tokenizer.window() else { return Ok(None) };
                tokenizers::tokenizer::step_decode_stream(
                    outside,
                    vec![token],
                    true,
                    ids,
                    prefix,
                    prefix_index,
                )
                .map_err(|error| Error::Decode(error.to_string()))
            }
        }
    }

    /// What is left when no token follows: a character that never closed becomes U+FFFD.
    pub fn finish(self) -> Result<Option<String>, Error> {
        let text = match self.state {
            State::Bytes { pending } => String::from_utf8_lossy(&pending).into_owned(),
            State::Window { ids, prefix, .. } => {
                let whole = self.tokenizer.decode(&ids)?;
                whole.strip_prefix(prefix.as_str()).unwrap_or_default().to_owned()
            }
        };
        Ok((!text.is_empty()).then_some(text))
    }
}

/// Moves every finished character out of `pending`, bytes that no continuation can repair as U+FFFD.
fn take_characters(pending: &mut Vec<u8>) -> String {
    let mut text = String::new();
    let mut rest = pending.as_slice();
    let open = loop {
        let (valid, error_len) = match std::str::from_utf8(rest) {
            Ok(all) => {
                text.push_str(all);
                break 0;
            }
            Err(error) => (error.valid_up_to(), error.error_len()),
        };
        text.push_str(&String::from_utf8_lossy(&rest[..valid]));
        let Some(broken) = error_len else {
            break rest.len() - valid;
        };
        text.push(char::REPLACEMENT_CHARACTER);
        rest = &rest[valid + broken..];
    };
    pending.drain(..pending.len() - open);
    text
}
