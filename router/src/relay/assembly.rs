//! From tokens of two workers, possibly of several starts, to one text. Pure.
//!
//! Every token has its position, and is taken once, in order: first those of prefill, one a start, each followed by decode's.
//! What was taken is delivered, and the next start goes on after it; what came too early to be taken is drawn again.

use proto::v1::{EndReason, Finish, FinishReason, Logprobs, TokenDelta};
use text::{Checked, Decoder, StopMatcher, Tokenizer};

use crate::error::Error;
use crate::request::Request;

#[cfg(test)]
mod tests;

/// A token with its log probability, where that was asked for.
type Token = (u32, Option<Logprobs>);

/// Drafts that were verified, and accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Drafts {
    pub(super) drafted: u32,
    pub(super) accepted: u32,
}

impl Drafts {
    fn add(&mut self, more: Self) {
        self.drafted = self.drafted.saturating_add(more.drafted);
        self.accepted = self.accepted.saturating_add(more.accepted);
    }
}

#[derive(Debug, Default)]
struct Early {
    tokens: Vec<Token>,
    drafts: Drafts,
}

#[derive(Debug)]
pub(super) struct Assembly {
    prompt_tokens: u32,
    max_tokens: usize,
    end_tokens: Vec<u32>,
    stop_tokens: Vec<u32>,
    /// Alternatives a token, where log probabilities are asked for.
    logprobs: Option<u32>,
    output: Vec<u32>,
    /// How long the output was when the present start began.
    before: usize,
    /// Tokens from decode that came before the first token.
    early: Early,
    drafts: Drafts,
    decoder: Decoder,
    stop: StopMatcher,
    complete: Option<FinishReason>,
}

/// A part of the answer.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Piece {
    pub(super) token_ids: Vec<u32>,
    pub(super) text: String,
    pub(super) logprobs: Vec<Logprobs>,
    pub(super) finish: Option<Finish>,
}

impl Piece {
    pub(super) fn end(reason: FinishReason) -> Self {
        let finish = Finish { reason: reason.into(), stop_sequence: String::new() };
        Self { finish: Some(finish), ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.token_ids.is_empty() && self.text.is_empty()
    }

    /// This piece and the one after it.
    pub(super) fn and(mut self, next: Self) -> Self {
        self.token_ids.extend(next.token_ids);
        self.text.push_str(&next.text);
        self.logprobs.extend(next.logprobs);
        self.finish = next.finish;
        self
    }
}

impl Assembly {
    pub(super) fn new(request: &Request, tokenizer: &Tokenizer) -> Self {
        Self {
            prompt_tokens: request.prompt_tokens(),
            max_tokens: request.max_tokens as usize,
            end_tokens: request.end_tokens.clone(),
            stop_tokens: request.sampling.stop_token_ids.clone(),
            logprobs: request.sampling.logprobs,
            output: Vec::new(),
            before: 0,
            early: Early::default(),
            drafts: Drafts::default(),
            decoder: tokenizer.decoder(),
            stop: StopMatcher::new(request.sampling.stop.clone()),
            complete: None,
        }
    }

    /// Tokens of the output so far.
    pub(super) fn tokens(&self) -> u32 {
        u32::try_from(self.output.len()).unwrap_or(u32::MAX)
    }

    /// What has been taken, in order.
    pub(super) fn output(&self) -> &[u32] {
        &self.output
    }

    /// Of the steps whose tokens were taken.
    pub(super) fn drafts(&self) -> Drafts {
        self.drafts
    }

    /// Whether the present start has brought its first token.
    pub(super) fn has_first(&self) -> bool {
        self.output.len() > self.before
    }

    /// Whether no token follows.
    pub(super) fn is_complete(&self) -> bool {
        self.complete.is_some()
    }

    /// Whether the tokens taken, by themselves, end the output, whatever workers still say.
    pub(super) fn is_over(&self) -> bool {
        self.output.len() >= self.max_tokens
            || self.output.last().is_some_and(|id| self.end_tokens.contains(id))
    }

    /// Prefill's token, and whatever decode sent before it came.
    pub(super) fn first(
        &mut self,
        id: u32,
        logprobs: Option<Logprobs>,
        tokenizer: &Tokenizer,
    ) -> Result<Piece, Error> {
        if self.has_first() {
            return Err(Error::Internal("prefill sent its first token twice".to_owned()));
        }
        let early = std::mem::take(&mut self.early);
        self.drafts.add(early.drafts);
        let tokens = std::iter::once((id, logprobs)).chain(early.tokens);
        self.take(tokens, tokenizer)
    }

    /// Decode's tokens.
    pub(super) fn more(&mut self, delta: TokenDelta, tokenizer: &Tokenizer) -> Result<Piece, Error> {
        let TokenDelta { position, token_ids, logprobs, drafted_tokens, accepted_tokens } = delta;
        if self.logprobs.is_some() && logprobs.len() != token_ids.len() {
            return Err(Error::Internal("decode left out log probabilities".to_owned()));
        }
        let drafts = Drafts { drafted: drafted_tokens, accepted: accepted_tokens };
        let before_first = if self.has_first() { 0 } else { 1 + self.early.tokens.len() };
        let expected = u64::from(self.prompt_tokens) + (self.output.len() + before_first) as u64;
        if u64::from(position) != expected {
            return Err(Error::Internal(format!("decode sent position {position} instead of {expected}")));
        }
        let mut logprobs = logprobs.into_iter();
        let tokens = token_ids.into_iter().map(|id| (id, logprobs.next()));
        if self.has_first() {
            self.drafts.add(drafts);
            return self.take(tokens, tokenizer);
        }
        self.early.tokens.extend(tokens);
        self.early.drafts.add(drafts);
        Ok(Piece::default())
    }

    /// Decode says that it has ended.
    pub(super) fn ended(&mut self, reason: EndReason) {
        if self.complete.is_none() {
            self.complete = Some(match reason {
                EndReason::EndToken => self.end_token_reason(self.output.last().copied()),
                EndReason::Length | EndReason::Unspecified => FinishReason::Length,
            });
        }
    }

    /// The held back rest of the text, and how it ended.
    pub(super) fn close(&mut self, tokenizer: &Tokenizer) -> Result<Piece, Error> {
        let reason = self.complete.unwrap_or(FinishReason::Length);
        let decoder = std::mem::replace(&mut self.decoder, tokenizer.decoder());
        let rest = decoder.finish().map_err(|error| Error::Internal(error.to_string()))?;
        let mut piece = Piece::end(reason);
        if self.show(rest.unwrap_or_default(), &mut piece) {
            piece.text.push_str(&std::mem::take(&mut self.stop).finish());
        }
        Ok(piece)
    }

    /// The request goes on elsewhere: what follows the output comes next.
    pub(super) fn restart(&mut self) {
        self.before = self.output.len();
        self.early = Early::default();
        self.complete = None;
    }

    fn take(&mut self, tokens: impl Iterator<Item = Token>, tokenizer: &Tokenizer) -> Result<Piece, Error> {
        let mut piece = Piece::default();
        for (id, logprobs) in tokens {
            if self.is_over() {
                return Err(Error::Internal("tokens came after the end".to_owned()));
            }
            self.output.push(id);
            piece.token_ids.push(id);
            if let Some(most) = self.logprobs {
                piece.logprobs.extend(logprobs.map(|entry| named(entry, most, tokenizer)));
            }
            self.note_end(id);
            if !self.end_tokens.contains(&id) {
                let text = self.decoder.push(id).map_err(|error| Error::Internal(error.to_string()))?;
                if let Some(text) = text
                    && !self.show(text, &mut piece)
                {
                    return Ok(piece);
                }
            }
        }
        Ok(piece)
    }

    fn note_end(&mut self, id: u32) {
        if self.end_tokens.contains(&id) {
            self.complete = Some(self.end_token_reason(Some(id)));
        } else if self.output.len() >= self.max_tokens {
            self.complete = Some(FinishReason::Length);
        }
    }

    fn end_token_reason(&self, id: Option<u32>) -> FinishReason {
        if id.is_some_and(|id| self.stop_tokens.contains(&id)) {
            FinishReason::StopSequence
        } else {
            FinishReason::Stop
        }
    }

    /// Adds what may be shown of `text`. False: a stop string is complete, and the piece is the last.
    fn show(&mut self, text: String, piece: &mut Piece) -> bool {
        match self.stop.push(text) {
            Checked::Open(text) => {
                piece.text.push_str(&text);
                true
            }
            Checked::Stopped { text, stop } => {
                piece.text.push_str(&text);
                let reason = FinishReason::StopSequence;
                piece.finish = Some(Finish { reason: reason.into(), stop_sequence: stop });
                self.complete = Some(reason);
                false
            }
        }
    }
}

/// Adds what only the tokenizer knows, and leaves out alternatives that were not asked for.
fn named(mut entry: Logprobs, most: u32, tokenizer: &Tokenizer) -> Logprobs {
    entry.top.truncate(most as usize);
    for token in entry.chosen.iter_mut().chain(&mut entry.top) {
        token.bytes = tokenizer.token_bytes(token.token_id).to_vec().into();
    }
    entry
}
