use model::StateShape;
use model::weights::Float;
use stablehlo::{DType, Type};

use crate::ShapeLadder;
use crate::program::array;

/// An array that lives on the device from the engine's start to its end and holds the state of all sequences.
///
/// Pages and slots that were never written may hold anything, NaN included: no program lets them reach a result. The
/// last page and the last slot are trash: padded rows write there and nobody reads it. T is the window: one token and the
/// drafts after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StateArray {
    /// `[latent_layers, pages + 1, page_tokens, latent_width]`, rows filled up with zeros to a multiple of
    /// [`ShapeLadder::lane`]; the draft layer's are the last.
    Latents,
    /// `[latent_layers, pages + 1, page_tokens / pool, index_dim]`: pooled keys of the sparse attention's indexer.
    IndexKeys,
    /// f32 `[latent_layers, slots + 1, ring, 2, index_dim]`: the latest tokens' raw keys and pooling scores, the one at
    /// position `p` in place `p mod ring`.
    IndexRing,
    /// f32 `[recurrent_layers, slots + 1, heads, key_dim, value_dim]`: before the window's tokens, where there is a window.
    Recurrent,
    /// f32 `[recurrent_layers, slots + 1, 3, rows, tail_width]`: oldest row first; query, key, value. `rows` is
    /// `tail_rows`, and with drafts T more: what came before the window, then the window.
    Tails,
    /// f32 `[recurrent_layers, slots + 1, T, heads, key_dim]`: keys of the window.
    WindowKeys,
    /// f32 `[recurrent_layers, slots + 1, T, heads, key_dim]`: log decay of the window.
    WindowDecay,
    /// f32 `[recurrent_layers, slots + 1, T, heads, value_dim]`: what the window's tokens write.
    WindowWritten,
    /// f32 `[slots + 1, T, hidden]`: hidden vectors of the window that the draft layer continues from; after a prompt the
    /// last token's is the first.
    Hidden,
    /// s32 `[slots + 1, vocabulary]`: how often each token was drawn.
    OutputCounts,
    /// pred `[slots + 1, vocabulary]`: which tokens the prompt holds.
    PromptSeen,
    /// f32 `[slots + 1, vocabulary]`: added to the logits.
    LogitBias,
}

impl StateArray {
    /// Those that a model has on a ladder, in order.
    #[must_use]
    pub fn of(state: &StateShape, ladder: &ShapeLadder) -> Vec<Self> {
        let mut all = vec![Self::Latents];
        if state.index.is_some() {
            all.extend([Self::IndexKeys, Self::IndexRing]);
        }
        all.extend([Self::Recurrent, Self::Tails]);
        if ladder.drafts > 0 {
            all.extend([Self::WindowKeys, Self::WindowDecay, Self::WindowWritten]);
        }
        if state.hidden.is_some() {
            all.push(Self::Hidden);
        }
        all.extend([Self::OutputCounts, Self::PromptSeen, Self::LogitBias]);
        all
    }

    /// Whether the layers write it; sampling writes or reads the others.
    #[must_use]
    pub fn is_of_layers(self) -> bool {
        !matches!(self, Self::Hidden | Self::OutputCounts | Self::PromptSeen | Self::LogitBias)
    }

    /// The array's type for a model and a ladder.
    #[must_use]
    pub fn ty(self, state: &StateShape, ladder: &ShapeLadder) -> Type {
        let (pages, slots) = (ladder.pages as usize + 1, ladder.slots as usize + 1);
        let (per_slot, window) = ([slots, state.vocabulary], ladder.window() as usize);
        let page = ladder.page_tokens as usize;
        let cached = match ladder.latents {
            Float::F32 => DType::F32,
            Float::Bf16 => DType::BF16,
        };
        let (index_dim, pool) = state.index.map_or((0, 1), |index| (index.dim, index.pool));
        let keys = [state.recurrent_layers, slots, window, state.heads, state.key_dim];
        let values = [state.recurrent_layers, slots, window, state.heads, state.value_dim];
        match self {
            Self::Latents => {
                let width = state.latent_width.next_multiple_of(ladder.lane as usize);
                array(cached, &[state.latent_layers, pages, page, width])
            }
            Self::IndexKeys => array(cached, &[state.latent_layers, pages, page / pool, index_dim]),
            Self::IndexRing => {
                let ring = ladder.ring(pool);
                array(DType::F32, &[state.latent_layers, slots, ring, 2, index_dim])
            }
            Self::Recurrent => array(
                DType::F32,
                &[state.recurrent_layers, slots, state.heads, state.key_dim, state.value_dim],
            ),
            Self::Tails => {
                let rows = state.tail_rows + if ladder.drafts > 0 { window } else { 0 };
                array(DType::F32, &[state.recurrent_layers, slots, 3, rows, state.tail_width])
            }
            Self::WindowKeys | Self::WindowDecay => array(DType::F32, &keys),
            Self::WindowWritten => array(DType::F32, &values),
            Self::Hidden => array(DType::F32, &[slots, window, state.hidden.unwrap_or(0)]),
            Self::OutputCounts => array(DType::S32, &per_slot),
            Self::PromptSeen => array(DType::Pred, &per_slot),
            Self::LogitBias => array(DType::F32, &per_slot),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Latents => "latents",
            Self::IndexKeys => "index_keys",
            Self::IndexRing => "index_ring",
            Self::Recurrent => "recurrent",
            Self::Tails => "tails",
            Self::WindowKeys => "window_keys",
            Self::WindowDecay => "window_decay",
            Self::WindowWritten => "window_written",
            Self::Hidden => "hidden",
            Self::OutputCounts => "output_counts",
            Self::PromptSeen => "prompt_seen",
            Self::LogitBias => "logit_bias",
        }
    }
}
