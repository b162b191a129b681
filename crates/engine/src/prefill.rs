use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prefix::Namespace;
use programs::sampling::Sampling;

use crate::command::Commands;
use crate::outlet::Inlet;
use crate::{Error, SlotState};

/// A prompt to compute the state of, and how to draw the first token.
#[derive(Clone, Debug)]
pub struct PrefillJob {
    /// Names the request in logs.
    pub request_id: String,
    /// At least one token, at most the context.
    pub prompt: Vec<u32>,
    /// Whose prompts it may share state with.
    pub namespace: Namespace,
    /// How many of the prompt's last tokens an earlier engine drew for this request. They are output to the penalties, and the
    /// token drawn after them is the one that would have followed there.
    pub output_tokens: u32,
    /// How the first token is drawn.
    pub sampling: Sampling,
    /// Higher goes first.
    pub priority: i32,
    /// When the answer is worth nothing any more.
    pub deadline: Option<Instant>,
}

impl PrefillJob {
    /// The tokens that were given, and those that were drawn after them.
    pub fn parts(&self) -> (&[u32], &[u32]) {
        let given = self.prompt.len().saturating_sub(self.output_tokens as usize);
        self.prompt.split_at(given)
    }
}

/// How often each token was drawn, ids ascending.
pub fn output_counts(output: &[u32]) -> Vec<(u32, u32)> {
    let mut counts = BTreeMap::new();
    for id in output {
        *counts.entry(*id).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

/// What happens to a prompt.
#[derive(Clone, Debug)]
pub enum PrefillEvent {
    /// It has pages and a slot, and computing begins.
    Started,
    /// A chunk is computed, or was cached; its latents and keys never change again, but for the draft layer's at the prompt's end: there it
    /// is a token behind, and the first decode step writes its last latent and completes its last key.
    Chunk {
        /// Position of the chunk's first token.
        first_position: u32,
        /// Tokens in the chunk.
        tokens: u32,
        /// f32 `[latent_layers, tokens, latent_width]`.
        latents: Arc<[f32]>,
        /// Index keys of the pools that the chunk completes, f32 `[latent_layers, pools, index_dim]`; 0 for what the draft layer
        /// has not completed.
        keys: Arc<[f32]>,
        /// The first of these pools: the one that the chunk's first token is in.
        first_pool: u32,
        /// How many pools.
        pools: u32,
        /// Tokens of the prompt whose latents were told of.
        done: u32,
        /// Tokens of the prompt.
        total: u32,
    },
    /// All is computed, and the engine holds nothing of the prompt any more. The last event.
    Done {
        /// Drawn from the last token's logits; its position is the prompt's length.
        first: SampledToken,
        /// The state after the whole prompt.
        state: SlotState,
        /// Tokens of the prompt that were not computed, as their state was cached.
        cached: u32,
        /// Where the time went.
        timings: PrefillTimings,
    },
}

/// A token as drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampledToken {
    /// The token.
    pub id: u32,
    /// Its log-probability under the model's own logits; 0 where the request asks for none.
    pub logprob: f32,
    /// The likeliest tokens and their log-probabilities, as many as the request asks for.
    pub top: Vec<(u32, f32)>,
}

/// Where a prompt's time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefillTimings {
    /// From asking to having room.
    pub queued: Duration,
    /// From having room to the end, other prompts' turns included.
    pub computed: Duration,
}

/// The events of one prompt. Dropping it cancels the prompt at the next step; not reading it holds up this prompt alone.
#[derive(Debug)]
pub struct PrefillStream {
    inlet: Inlet<PrefillEvent>,
    commands: Commands,
}

impl PrefillStream {
    pub(crate) fn new(inlet: Inlet<PrefillEvent>, commands: Commands) -> Self {
        Self { inlet, commands }
    }

    /// The next event; none after [`PrefillEvent::Done`] or an error. May be dropped and called again.
    pub async fn next(&mut self) -> Option<Result<PrefillEvent, Error>> {
        let event = self.inlet.next().await;
        // The prompt may have waited for its reader.
        self.commands.wake();
        event
    }
}

impl Drop for PrefillStream {
    fn drop(&mut self) {
        self.inlet.abandon();
        self.commands.wake();
    }
}
