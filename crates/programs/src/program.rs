use model::StateShape;
use model::weights::WeightSpec;
use stablehlo::{DType, Type};

use crate::ShapeLadder;

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

/// An array that lives on the device from the engine's start to its end and holds the state of all sequences.
///
/// Pages and slots that were never written may hold anything, NaN included: no program lets them reach a result. The
/// last page and the last slot are trash: padded rows write there and nobody reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StateArray {
    /// f32 `[latent_layers, pages + 1, page_tokens, latent_width]`.
    Latents,
    /// f32 `[recurrent_layers, slots + 1, heads, key_dim, value_dim]`.
    Recurrent,
    /// f32 `[recurrent_layers, slots + 1, 3, tail_rows, tail_width]`: oldest row first; query, key, value.
    Tails,
    /// s32 `[slots + 1, vocabulary]`: how often each token was drawn.
    OutputCounts,
    /// pred `[slots + 1, vocabulary]`: which tokens the prompt holds.
    PromptSeen,
    /// f32 `[slots + 1, vocabulary]`: added to the logits.
    LogitBias,
}

impl StateArray {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Latents, Self::Recurrent, Self::Tails, Self::OutputCounts, Self::PromptSeen, Self::LogitBias];

    /// The array's type for a model and a ladder.
    #[must_use]
    pub fn ty(self, state: &StateShape, ladder: &ShapeLadder) -> Type {
        let (pages, slots) = (ladder.pages as usize + 1, ladder.slots as usize + 1);
        let per_slot = [slots, state.vocabulary];
        match self {
            Self::Latents => array(
                DType::F32,
                &[state.latent_layers, pages, ladder.page_tokens as usize, state.latent_width],
            ),
            Self::Recurrent => array(
                DType::F32,
                &[state.recurrent_layers, slots, state.heads, state.key_dim, state.value_dim],
            ),
            Self::Tails => {
                array(DType::F32, &[state.recurrent_layers, slots, 3, state.tail_rows, state.tail_width])
            }
            Self::OutputCounts => array(DType::S32, &per_slot),
            Self::PromptSeen => array(DType::Pred, &per_slot),
            Self::LogitBias => array(DType::F32, &per_slot),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Latents => "latents",
            Self::Recurrent => "recurrent",
            Self::Tails => "tails",
            Self::OutputCounts => "output_counts",
            Self::PromptSeen => "prompt_seen",
            Self::LogitBias => "logit_bias",
        }
    }
}

/// A type from axis lengths.
pub(crate) fn array(dtype: DType, dims: &[usize]) -> Type {
    dtype.tensor(dims.iter().map(|&dim| dim as i64).collect::<Vec<_>>())
}

/// A value that the caller gives at each call.
///
/// C is the chunk length, B the batch, P [`ShapeLadder::pages_per_sequence`], W and R the widths of a packed
/// sampling row, V the vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Input {
    /// s32 `[C]` or `[B]`: token ids; those of padding are ignored but must be ids.
    Tokens,
    /// s32 `[]`: how many of the chunk's tokens are real, at least 1.
    Valid,
    /// s32 `[]`: position of the chunk's first token. At 0 the slot's old state is ignored.
    Start,
    /// s32 `[]`: 1 when the chunk ends the prompt, so that a token is drawn and counted; 0 otherwise, and the drawn
    /// outputs then mean nothing and no count changes.
    EndsPrompt,
    /// s32 `[B]`: position of the token being consumed; the drawn token stands one further.
    Positions,
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
    /// f32 `[latent_layers, tokens, latent_width]`: latents to import.
    ChunkLatents,
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
            Self::Start => "start",
            Self::EndsPrompt => "ends_prompt",
            Self::Positions => "positions",
            Self::Slot => "slot",
            Self::Slots => "slots",
            Self::PageTable => "page_table",
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

/// A value that a call gives back. Prefill has one row, decode B.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Output {
    /// s32 `[rows]`: drawn token ids.
    Sampled,
    /// f32 `[rows]`: log-probability of the drawn token under the raw logits.
    ChosenLogprob,
    /// s32 `[rows, 20]`: likeliest token ids, where a row asks for them.
    TopIds,
    /// f32 `[rows, 20]`: their log-probabilities.
    TopLogprobs,
    /// f32 `[rows, V]`: raw logits; only with [`Options::emit_logits`].
    Logits,
    /// f32 `[latent_layers, C, latent_width]`: latents of the chunk; rows of padding mean nothing.
    ChunkLatents,
    /// f32 `[recurrent_layers, heads, key_dim, value_dim]`: recurrent state of a slot.
    SlotRecurrent,
    /// f32 `[recurrent_layers, 3, tail_rows, tail_width]`: conv tails of a slot.
    SlotTails,
}

impl Output {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sampled => "sampled",
            Self::ChosenLogprob => "chosen_logprob",
            Self::TopIds => "top_ids",
            Self::TopLogprobs => "top_logprobs",
            Self::Logits => "logits",
            Self::ChunkLatents => "chunk_latents",
            Self::SlotRecurrent => "slot_recurrent",
            Self::SlotTails => "slot_tails",
        }
    }
}

/// What a program may do besides its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Give the raw logits back as [`Output::Logits`].
    pub emit_logits: bool,
}
