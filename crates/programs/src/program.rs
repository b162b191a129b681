use model::weights::{Formats, WeightSpec};
use stablehlo::{DType, Type};

use crate::StateArray;

/// A finished program: StableHLO text, and what each argument and result means.
#[derive(Clone, Debug)]
pub struct Program {
    /// Names the phase and the shape, e.g. `prefill_256` or `decode_8`.
    pub name: String,
    /// The module to compile.
    pub text: String,
    /// In the order of execution's arguments.
    pub args: Vec<Arg>,
    /// In the order of execution's results.
    pub results: Vec<Res>,
}

/// An argument of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arg {
    /// What to bind.
    pub what: ArgKind,
    /// Its type.
    pub ty: Type,
}

/// What an argument means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgKind {
    /// A weight, assembled from the checkpoint once for all programs.
    Weight(WeightSpec),
    /// A state array. It is donated exactly when the program has a result for the same array, which then replaces it;
    /// otherwise the program only reads it.
    State(StateArray),
    /// A value of this call.
    Input(Input),
}

/// A result of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Res {
    /// What it means.
    pub what: ResKind,
    /// Its type.
    pub ty: Type,
}

/// What a result means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResKind {
    /// The state array after the call, in the buffer of the argument.
    State(StateArray),
    /// A value for the caller.
    Output(Output),
}

/// What a program may do besides its work, and how the model's weights are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Formats of the weights; the same for all programs of an engine.
    pub formats: Formats,
    /// Give the raw logits back as [`Output::Logits`].
    pub emit_logits: bool,
    /// Give back what each layer made of a prompt's last row as [`Output::LayerOutputs`].
    pub emit_layers: bool,
    /// Verify the drafts of [`Input::ForcedDrafts`] rather than the draft layer's.
    pub force_drafts: bool,
}

/// A type from axis lengths.
pub(crate) fn array(dtype: DType, dims: &[usize]) -> Type {
    dtype.tensor(dims.iter().map(|&dim| dim as i64).collect::<Vec<_>>())
}

/// A value that the caller gives at each call.
///
/// C is the chunk length, B the batch, P [`ShapeLadder::pages_per_sequence`](crate::ShapeLadder::pages_per_sequence), W and
/// R the widths of a packed sampling row, V the vocabulary, T the window: one token and the drafts after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Input {
    /// s32 `[C]` or `[B]`: token ids; those of padding are ignored but must be ids.
    Tokens,
    /// s32 `[]`: how many of the chunk's tokens are real, at least 1.
    Valid,
    /// s32 `[]`: number of the device within the mesh. Only on a mesh of several.
    Share,
    /// s32 `[]`: position of the chunk's first token. At 0 the slot's old state is ignored.
    Start,
    /// s32 `[]`: 1 when the chunk ends the prompt, so that a token is drawn and counted; 0 otherwise, and the drawn
    /// outputs then mean nothing and no count changes.
    EndsPrompt,
    /// s32 `[]`: the token after the chunk, where the prompt goes on; any token otherwise. Only with a draft layer.
    NextToken,
    /// s32 `[B]`: position of the token being consumed; the drawn token stands one further.
    Positions,
    /// s32 `[B]`: tokens of the row's last window that count, the consumed one of then included; 0 for a sequence's first
    /// step. Only with drafts.
    Accepted,
    /// s32 `[B, T]`: the tokens that the last window drew and that count, in order; the last of them is the one being
    /// consumed. Those beyond [`Input::Accepted`] (or 1, if that is 0) are ignored but must be ids. Only with drafts.
    Recent,
    /// s32 `[B, T - 1]`: drafts to verify. Only with [`Options::force_drafts`].
    ForcedDrafts,
    /// s32 `[]`: the sequence's slot.
    Slot,
    /// s32 `[B]`: slots; padded rows name the trash slot.
    Slots,
    /// s32 `[P]` or `[B, P]`: pages of the sequence in order; unused entries name the trash page.
    PageTable,
    /// u32 `[1, W]` or `[B, W]`: integer part of packed sampling rows.
    SampleWords,
    /// f32 `[1, R]` or `[B, R]`: real part of packed sampling rows.
    SampleReals,
    /// s32 `[]`: the page to copy.
    FromPage,
    /// s32 `[]`: the page that takes the copy.
    ToPage,
    /// f32 `[latent_layers, tokens, latent_width]`: latents to import.
    ChunkLatents,
    /// f32 `[latent_layers, pools, index_dim]`: pooled index keys to import.
    ChunkKeys,
    /// f32 `[latent_layers, pool, 2, index_dim]`: the open pool's keys and scores to import, oldest first.
    SlotIndexTail,
    /// f32 `[hidden]`: the vector that the draft layer continues from.
    SlotHidden,
    /// f32 `[recurrent_layers, heads, key_dim, value_dim]`: recurrent state to import.
    SlotRecurrent,
    /// f32 `[recurrent_layers, 3, tail_rows, tail_width]`: conv tails to import.
    SlotTails,
    /// pred `[V]`: which tokens the prompt holds.
    SlotSeen,
    /// s32 `[V]`: how often each token was drawn before.
    SlotCounts,
    /// f32 `[V]`: logit bias.
    SlotBias,
}

impl Input {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Valid => "valid",
            Self::Share => "share",
            Self::Start => "start",
            Self::EndsPrompt => "ends_prompt",
            Self::NextToken => "next_token",
            Self::Positions => "positions",
            Self::Accepted => "accepted",
            Self::Recent => "recent",
            Self::ForcedDrafts => "forced_drafts",
            Self::ChunkKeys => "chunk_keys",
            Self::SlotIndexTail => "slot_index_tail",
            Self::SlotHidden => "slot_hidden",
            Self::Slot => "slot",
            Self::Slots => "slots",
            Self::PageTable => "page_table",
            Self::FromPage => "from_page",
            Self::ToPage => "to_page",
            Self::SampleWords => "sample_words",
            Self::SampleReals => "sample_reals",
            Self::ChunkLatents => "chunk_latents",
            Self::SlotRecurrent => "slot_recurrent",
            Self::SlotTails => "slot_tails",
            Self::SlotSeen => "slot_seen",
            Self::SlotCounts => "slot_counts",
            Self::SlotBias => "slot_bias",
        }
    }
}

/// A value that a call gives back. Prefill has one row; decode B, or with drafts B windows of T rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Output {
    /// s32 `[rows]`: drawn token ids.
    Sampled,
    /// s32 `[B]`: how many of a window's drawn tokens count, at least 1. Only with drafts.
    Accepted,
    /// f32 `[rows]`: log-probability of the drawn token under the raw logits.
    ChosenLogprob,
    /// s32 `[rows, 20]`: likeliest token ids, where a row asks for them.
    TopIds,
    /// f32 `[rows, 20]`: their log-probabilities.
    TopLogprobs,
    /// f32 `[rows, V]`: raw logits; only with [`Options::emit_logits`].
    Logits,
    /// f32 `[B, T - 1, V]`: raw logits of the drafts; only with [`Options::emit_logits`], and drafts.
    DraftLogits,
    /// f32 `[layers, channels]`: the residual of a prompt's last row after each layer; only with
    /// [`Options::emit_layers`].
    LayerOutputs,
    /// f32 `[latent_layers, C, latent_width]`: latents of the chunk; rows of padding mean nothing.
    ChunkLatents,
    /// f32 `[latent_layers, C / pool + 1, index_dim]`: pooled index keys that the chunk closed, from the pool of its first
    /// token on; the rest means nothing.
    ChunkKeys,
    /// f32 `[latent_layers, pool, 2, index_dim]`: the open pool's keys and scores, oldest first, 0 beyond them.
    SlotIndexTail,
    /// f32 `[hidden]`: the vector that the draft layer continues from.
    SlotHidden,
    /// f32 `[recurrent_layers, heads, key_dim, value_dim]`: recurrent state of a slot.
    SlotRecurrent,
    /// f32 `[recurrent_layers, 3, tail_rows, tail_width]`: conv tails of a slot.
    SlotTails,
}

impl Output {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sampled => "sampled",
            Self::Accepted => "accepted",
            Self::ChosenLogprob => "chosen_logprob",
            Self::TopIds => "top_ids",
            Self::TopLogprobs => "top_logprobs",
            Self::Logits => "logits",
            Self::DraftLogits => "draft_logits",
            Self::LayerOutputs => "layer_outputs",
            Self::ChunkLatents => "chunk_latents",
            Self::ChunkKeys => "chunk_keys",
            Self::SlotIndexTail => "slot_index_tail",
            Self::SlotHidden => "slot_hidden",
            Self::SlotRecurrent => "slot_recurrent",
            Self::SlotTails => "slot_tails",
        }
    }
}
