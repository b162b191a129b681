use std::ops::Range;

use model::StateShape;
use programs::ShapeLadder;
use programs::sampling::{MAX_LOGPROBS, REALS, SampleRow, WORDS};
use statepool::{PageId, PoolShape, SlotId};

use crate::Lease;

/// What a device does for the step loop, which alone calls it, from one thread.
///
/// Calls take effect in order. A call that fails leaves the state arrays as they were, or says that they are lost
/// ([`DeviceFault::lost_state`]) and has made new ones by the time it returns.
pub trait Device {
    /// What does not change while the device lives.
    fn facts(&self) -> &Facts;

    /// Computes one chunk of one prompt.
    fn prefill(&mut self, chunk: &Chunk<'_>) -> Result<ChunkDone, DeviceFault>;

    /// Consumes one token of every row and draws the next ones into `draws`, a window a row, padding included. The pages of
    /// a row hold the drafts after its token, too.
    fn decode(&mut self, rows: &Rows, draws: &mut Draws) -> Result<(), DeviceFault>;

    /// Writes the slot's rows that penalties and logit bias read.
    fn set_sampling(&mut self, slot: SlotId, rows: &SlotRows<'_>) -> Result<(), DeviceFault>;

    /// Writes latents f32 `[latent_layers, tokens, latent_width]` of the positions from `first` on to the lease's pages, and
    /// the index keys f32 `[latent_layers, pools, index_dim]` of the [pools](Facts::pools) that they complete. All of them lie
    /// within the lease.
    fn import_latents(
        &mut self,
        lease: &Lease,
        first: u32,
        tokens: u32,
        latents: &[f32],
        keys: &[f32],
    ) -> Result<(), DeviceFault>;

    /// Writes a slot's state after `tokens` tokens.
    fn import_state(&mut self, slot: SlotId, tokens: u32, state: &SlotState) -> Result<(), DeviceFault>;

    /// Reads a slot's state, which is that after `tokens` tokens of a prompt. What it gives is there: the device has done all
    /// that was asked of it before.
    fn export_state(&mut self, slot: SlotId, tokens: u32) -> Result<SlotState, DeviceFault>;

    /// Reads what `tokens` tokens from position `first` on keep in the lease's pages: latents and index keys, as
    /// [`Device::import_latents`] takes them.
    fn export_latents(
        &mut self,
        lease: &Lease,
        first: u32,
        tokens: u32,
    ) -> Result<(Vec<f32>, Vec<f32>), DeviceFault>;

    /// Copies a page, so that a sequence can write to what it shares.
    fn copy_page(&mut self, from: PageId, to: PageId) -> Result<(), DeviceFault>;

    /// Lets a prompt go on from a checkpoint: writes the slot's state after `tokens` tokens, and the draft layer's line of the
    /// last of them, which takes the token after it, `next`. The lease's pages hold the rest.
    fn resume(&mut self, lease: &Lease, tokens: u32, next: u32, state: &SlotState)
    -> Result<(), DeviceFault>;

    /// Fills pages and a slot that nobody had before with NaN, what draws read excepted. Asked where [`Facts::poison`] says
    /// so.
    fn poison(&mut self, pages: &[PageId], slot: SlotId) -> Result<(), DeviceFault>;
}

/// What a device runs, and in which shapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What one sequence keeps.
    pub state: StateShape,
    /// The shapes that have programs, and the sizes of the state arrays.
    pub ladder: ShapeLadder,
    /// Whether every new lease is filled with NaN before its first use, to show that nothing of another sequence is read.
    pub poison: bool,
}

impl Facts {
    /// The index pools that `tokens` tokens from position `first` on complete; none where attention is not sparse. Those
    /// tokens' keys are counted from the first of these.
    #[must_use]
    pub fn pools(&self, first: u32, tokens: u32) -> Range<u32> {
        let Some(index) = self.state.index else { return 0..0 };
        let pool = u32::try_from(index.pool).unwrap_or(u32::MAX).max(1);
        first / pool..first.saturating_add(tokens) / pool
    }

    /// Elements of the keys of so many pools.
    pub(crate) fn key_elements(&self, pools: &Range<u32>) -> usize {
        pools.len() * self.state.latent_layers * self.state.index.map_or(0, |index| index.dim)
    }

    /// Tokens for which a sequence of `tokens` tokens needs pages: its last step drafts beyond its end.
    pub(crate) fn paged_tokens(&self, tokens: u32) -> u32 {
        tokens.saturating_add(self.ladder.drafts)
    }

    pub(crate) fn pool(&self) -> PoolShape {
        PoolShape { pages: self.ladder.pages, slots: self.ladder.slots, page_tokens: self.ladder.page_tokens }
    }
}

/// A step that the device did not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DeviceFault {
    /// What the device said.
    pub message: String,
    /// Whether the state of all sequences went with it.
    pub lost_state: bool,
}

/// One prefill step: a chunk of a prompt and where its state lies.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// The real tokens.
    pub tokens: &'a [u32],
    /// Position of the first one.
    pub start: u32,
    /// Length of the program that runs it: at least the number of tokens.
    pub length: u32,
    /// Whether the prompt ends here, so that a token is drawn.
    pub ends_prompt: bool,
    /// The prompt's token after the chunk; 0 where the prompt ends.
    pub next: u32,
    /// The sequence's pages and slot.
    pub lease: &'a Lease,
    /// How the token is drawn.
    pub sampling: &'a SampleRow,
}

/// What a prefill step gives.
#[derive(Clone, Debug)]
pub struct ChunkDone {
    /// Latents of the real tokens, f32 `[latent_layers, tokens, latent_width]`.
    pub latents: Vec<f32>,
    /// Keys of the [pools](Facts::pools) that they complete, f32 `[latent_layers, pools, index_dim]`. The draft layer is a
    /// token behind at the prompt's end: 0 for what it has not completed.
    pub keys: Vec<f32>,
    /// The drawn token, where the prompt ends: one row.
    pub draws: Option<Draws>,
}

/// One decode step, packed for upload: B rows, the last ones padding. T is the ladder's window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// B: a batch size of the ladder.
    pub batch: u32,
    /// Changes whenever anything but `tokens`, `positions`, `accepted` and `recent` changed since the last step, so that a
    /// device can keep the rest in place.
    pub composition: u64,
    /// s32 `[B]`: the tokens to consume.
    pub tokens: Vec<i32>,
    /// s32 `[B]`: their positions.
    pub positions: Vec<i32>,
    /// s32 `[B]`: how many tokens of a sequence's last window counted; 0 before its first step.
    pub accepted: Vec<i32>,
    /// s32 `[B, T]`: those tokens, or the one to consume before the first step; then 0.
    pub recent: Vec<i32>,
    /// s32 `[B]`.
    pub slots: Vec<i32>,
    /// s32 `[B, pages_per_sequence]`.
    pub page_table: Vec<i32>,
    /// u32 `[B, WORDS]`.
    pub words: Vec<u32>,
    /// f32 `[B, REALS]`.
    pub reals: Vec<f32>,
    /// Whether any row asks for log-probabilities.
    pub logprobs: bool,
}

impl Rows {
    /// The packed sampling row of a place.
    pub fn sample_row(&self, row: usize) -> (&[u32], &[f32]) {
        let words = self.words.get(row * WORDS..(row + 1) * WORDS).unwrap_or_default();
        let reals = self.reals.get(row * REALS..(row + 1) * REALS).unwrap_or_default();
        (words, reals)
    }
}

/// Tokens drawn by one step: a prompt's one token, or of each of B rows a window of T.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Draws {
    /// s32 `[B]`: how many of a window count: one, and each draft before it that was the token drawn in its place.
    pub counts: Vec<i32>,
    /// s32 `[rows]`, windows one after another: token ids; -1 where the logits are not finite.
    pub tokens: Vec<i32>,
    /// Log-probability of the token, where the row asks. Empty if no row does, as are the two below.
    pub logprobs: Vec<f32>,
    /// `[rows, 20]`: likeliest tokens.
    pub top_ids: Vec<i32>,
    /// `[rows, 20]`: their log-probabilities.
    pub top_logprobs: Vec<f32>,
}

impl Draws {
    /// Log-probability and alternatives of a row.
    pub(crate) fn alternatives(&self, row: usize, wanted: Option<u32>) -> (f32, Vec<(u32, f32)>) {
        let Some(wanted) = wanted else { return (0.0, Vec::new()) };
        let width = MAX_LOGPROBS as usize;
        let begin = row * width;
        let ids = self.top_ids.get(begin..begin + width).unwrap_or_default();
        let logprobs = self.top_logprobs.get(begin..begin + width).unwrap_or_default();
        let listed = ids.iter().zip(logprobs).take(wanted as usize);
        let top = listed.filter_map(|(id, logprob)| Some((u32::try_from(*id).ok()?, *logprob))).collect();
        (self.logprobs.get(row).copied().unwrap_or_default(), top)
    }
}

/// What penalties and logit bias read of a slot.
#[derive(Clone, Copy, Debug)]
pub struct SlotRows<'a> {
    /// Tokens that the prompt holds.
    pub seen: &'a [u32],
    /// How often each token was drawn.
    pub counts: &'a [(u32, u32)],
    /// What is added to the logits.
    pub bias: &'a [(u32, f32)],
}

/// The fixed-size part of a sequence's state; empty where the model has no such part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlotState {
    /// f32 `[recurrent_layers, heads, key_dim, value_dim]`.
    pub recurrent: Vec<f32>,
    /// f32 `[recurrent_layers, 3, tail_rows, tail_width]`: query, key, value; oldest row first.
    pub tails: Vec<f32>,
    /// f32 `[latent_layers, pool, 2, index_dim]`: keys and scores of the open pools' tokens; oldest first, 0 beyond them.
    pub index_tail: Vec<f32>,
    /// f32 `[hidden]`: the last token's vector that the draft layer continues from.
    pub hidden: Vec<f32>,
}
