//! Several answers to one request become one stream that delivers every token once.

use tonic::Code;

use crate::{
    error::{Error, Reason},
    v1::GenerateResponse,
};

/// Knows what was delivered.
///
/// A further answer to the same request has to begin with exactly those tokens and that text, which are left out; then all that is
/// delivered is what that answer says.
#[derive(Debug, Default)]
pub(crate) struct Splice {
    ids: Vec<u32>,
    text: String,
    sequence: u64,
    answer: Seen,
}

/// How much of the present answer has come.
#[derive(Debug, Default)]
struct Seen {
    responses: u64,
    ids: usize,
    text: usize,
}

impl Splice {
    /// A new answer begins.
    pub(crate) fn begin(&mut self) {
        self.answer = Seen::default();
    }

    /// Tokens that were delivered.
    pub(crate) fn delivered(&self) -> u32 {
        u32::try_from(self.ids.len()).unwrap_or(u32::MAX)
    }

    /// What is new in the answer's next response, if anything is.
    pub(crate) fn accept(
        &mut self,
        mut response: GenerateResponse,
    ) -> Result<Option<GenerateResponse>, Error> {
        let (expected, came) = (self.answer.responses, response.sequence);
        if came != expected {
            let message = format!("response {expected} of the stream is missing; {came} came");
            return Err(Error::new(Reason::Malformed, Code::Unknown, message));
        }
        self.answer.responses += 1;
        let old_ids = overlap(&self.ids, self.answer.ids, response.token_ids.len());
        let old_text = overlap(self.text.as_bytes(), self.answer.text, response.text.len());
        self.answer.ids += response.token_ids.len();
        self.answer.text += response.text.len();
        let same = response.token_ids.starts_with(old_ids) && response.text.as_bytes().starts_with(old_text);
        let whole = self.answer.ids >= self.ids.len() && self.answer.text >= self.text.len();
        if !same || (response.finish.is_some() && !whole) {
            let message = "the answer to the same request does not begin with what was delivered";
            return Err(Error::new(Reason::Diverged, Code::Unknown, message));
        }
        response.logprobs.drain(..old_ids.len().min(response.logprobs.len()));
        response.token_ids.drain(..old_ids.len());
        // Delivered text ends where a character does.
        response.text.drain(..old_text.len());
        if response.token_ids.is_empty() && response.text.is_empty() && response.finish.is_none() {
            return Ok(None);
        }
        response.sequence = self.sequence;
        self.sequence += 1;
        self.ids.extend(&response.token_ids);
        self.text.push_str(&response.text);
        Ok(Some(response))
    }
}

/// The part of what was delivered that the next `length` items, from `seen` on, repeat.
fn overlap<T>(delivered: &[T], seen: usize, length: usize) -> &[T] {
    let rest = delivered.get(seen..).unwrap_or_default();
    &rest[..length.min(rest.len())]
}
