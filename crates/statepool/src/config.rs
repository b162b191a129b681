use std::fmt;
use std::num::NonZeroU32;

use prefix::{HashUnit, Tokens};

/// A size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)
    }
}

/// A sequence's recurrent state at one position, kept on the host. The pool does not look inside.
pub trait Checkpoint {
    /// Tokens the state has consumed, by its own count: the one that travelled with it from the device.
    fn tokens(&self) -> Tokens;

    /// What it takes on the host.
    fn bytes(&self) -> Bytes;
}

/// What is kept of finished prompts, and how it is chosen.
#[derive(Clone, Copy, Debug)]
pub struct CacheConfig {
    /// How far boundaries lie apart.
    pub unit: HashUnit,
    /// What all checkpoints together may take on the host.
    pub budget: Bytes,
    /// Whether a prompt that resumes at a position writes the latent line before it again. Models with a draft layer
    /// do: that layer's line depends on the token after it.
    pub rewrites_last_line: bool,
    /// Where prompts leave checkpoints.
    pub marks: Marks,
    /// What is evicted first.
    pub keep: Keep,
    /// Boundaries that are remembered by hash alone, about 60 bytes each.
    pub remembered: usize,
}

impl CacheConfig {
    /// The rules whose replays are in `docs/prefix-cache.md`.
    pub fn new(unit: HashUnit, budget: Bytes) -> Self {
        Self {
            unit,
            budget,
            rewrites_last_line: false,
            marks: Marks::default(),
            keep: Keep::Worth,
            remembered: 1 << 18,
        }
    }
}

/// Where a prompt that is about to be prefilled leaves checkpoints: every rule that is on adds its boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// The end of the prompt's last whole unit: the next turn of a conversation begins there. Of a prompt of whole units the
    /// boundary before its end, too: the same prompt asked again can not resume at its own end.
    pub end: bool,
    /// Where it leaves what earlier prompts had in common with it. The second prompt to pass a boundary that has no
    /// checkpoint leaves one, so that the third finds it.
    pub branches: bool,
    /// Up to three boundaries before the end, each while prompts are seen to leave their predecessors there so often
    /// that its checkpoint is expected to save this many tokens. (A last turn that is edited or answered again, and a
    /// template's closing tokens, part two prompts shortly before the end of the former.)
    pub before_end: Option<Tokens>,
    /// Multiples of this many units, for prompts that part where none did before.
    pub grid: Option<NonZeroU32>,
}

impl Default for Marks {
    fn default() -> Self {
        Self { end: true, branches: true, before_end: Some(Tokens(32)), grid: NonZeroU32::new(16) }
    }
}

/// What is evicted first, among checkpoints for bytes and among leaves for pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The least recently used.
    Recent,
    /// The one with the least expected reuse for what it takes (GreedyDual-Size-Frequency): uses^0.75 x tokens that were to be
    /// computed again / bytes or pages, and a clock that grows with every eviction, so that old fame fades.
    Worth,
}
