use std::ops::AddAssign;
use std::time::Instant;

use programs::sampling::Sampling;

use crate::command::Commands;
use crate::outlet::Inlet;
use crate::{Error, SampledToken};

/// How an imported sequence goes on.
#[derive(Clone, Debug)]
pub struct DecodeJob {
    /// Names the request in logs.
    pub request_id: String,
    /// Positions that the imported state covers; the first token stands at this position.
    pub prompt_len: u32,
    /// The prompt's tokens, each once or more; read only by requests with penalties.
    pub prompt_seen: Vec<u32>,
    /// How often each token was drawn so far, the first token included; read only by requests with penalties.
    pub output_counts: Vec<(u32, u32)>,
    /// Drawn by the prefill; the first step consumes it.
    pub first_token: u32,
    /// How tokens are drawn. Of `max_tokens` the first token is one.
    pub sampling: Sampling,
    /// The model's end tokens; ignored where the sampling says so.
    pub end_tokens: Vec<u32>,
    /// When the answer is worth nothing any more.
    pub deadline: Option<Instant>,
}

impl DecodeJob {
    pub(crate) fn ends_at(&self, token: u32) -> bool {
        self.sampling.stop_token_ids.contains(&token)
            || (!self.sampling.ignore_eos && self.end_tokens.contains(&token))
    }
}

/// What happens to an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum DecodeEvent {
    /// Tokens were drawn, by one step or several. The first token, which the prefill drew, is not among them.
    Tokens {
        /// Position of the first of them.
        position: u32,
        /// In order, without a gap.
        tokens: Vec<SampledToken>,
        /// Of the steps that drew them.
        drafts: DraftCounts,
    },
    /// No more tokens follow. The last event.
    Ended {
        /// Why.
        reason: EndReason,
    },
}

/// What became of drafts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftCounts {
    /// Drafts that were verified.
    pub verified: u32,
    /// Those of them that became tokens.
    pub accepted: u32,
}

impl AddAssign for DraftCounts {
    fn add_assign(&mut self, more: Self) {
        self.verified += more.verified;
        self.accepted += more.accepted;
    }
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// This end token was drawn; it is the last one reported.
    EndToken(u32),
    /// All tokens that were asked for, or that fit, are drawn.
    Length,
}

/// The tokens of one sequence. Dropping it ends the sequence and frees its room at the next step.
#[derive(Debug)]
pub struct DecodeStream {
    inlet: Inlet<DecodeEvent>,
    commands: Commands,
}

impl DecodeStream {
    pub(crate) fn new(inlet: Inlet<DecodeEvent>, commands: Commands) -> Self {
        Self { inlet, commands }
    }

    /// The next event; tokens that wait already come as one. None after [`DecodeEvent::Ended`] or an error. May be dropped
    /// and called again.
    pub async fn next(&mut self) -> Option<Result<DecodeEvent, Error>> {
        let event = match self.inlet.next().await? {
            Ok(event) => event,
            Err(error) => return Some(Err(error)),
        };
        let DecodeEvent::Tokens { position, mut tokens, mut drafts } = event else { return Some(Ok(event)) };
        // Only tokens are ever queued: the end travels beside the queue.
        while let Some(DecodeEvent::Tokens { tokens: mut later, drafts: more, .. }) = self.inlet.queued() {
            tokens.append(&mut later);
            drafts += more;
        }
        Some(Ok(DecodeEvent::Tokens { position, tokens, drafts }))
    }
}

impl Drop for DecodeStream {
    fn drop(&mut self) {
        self.inlet.abandon();
        self.commands.wake();
    }
}
