use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use model::ModelConfig;
use prefix::HashUnit;
use programs::ShapeLadder;
use programs::weights::Float;
use statepool::{Bytes, CacheConfig, Marks};

use crate::{CheckpointFormat, Error, Facts};

/// What an engine runs. Threads are the plugin's: it reads `PJRT_NPROC` when the process makes its client.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Folder with config.json and the weights.
    pub model_dir: PathBuf,
    /// The PJRT plugin.
    pub plugin: PathBuf,
    /// Devices that the model is divided over, by heads and experts: the plugin's first ones; none: all that it has, on CPU one.
    pub devices: Option<NonZeroUsize>,
    /// Which phases get programs.
    pub role: Role,
    /// Shapes; [`default_ladder`] where none is given. Its drafts and the width of its latents are those below.
    pub ladder: Option<ShapeLadder>,
    /// Drafts of a step, as [`drafts_of`] says.
    pub drafts: Option<u32>,
    /// Width of activations, latents and float matrices.
    pub float: Float,
    /// Whether matrices are converted to int8.
    pub int8: bool,
    /// Where compiled programs are kept; none: they are compiled at each start.
    pub cache_dir: Option<PathBuf>,
    /// Fill new state arrays with NaN instead of zeros, and pages and slots again when they pass to another sequence, to show
    /// that nothing unwritten is read. For tests: each lease costs a copy of the arrays, and programs are compiled quickly
    /// rather than well.
    pub poison: bool,
    /// Bounds on queues.
    pub limits: Limits,
    /// What is kept of prompts for those to come; none: nothing.
    pub prefix: Option<PrefixCache>,
}

/// What is kept of prompts, so that those that begin alike need not compute it again.
#[derive(Clone, Copy, Debug)]
pub struct PrefixCache {
    /// Prompts can be resumed at multiples of this.
    pub unit: HashUnit,
    /// What all recurrent checkpoints together may take on the host.
    pub checkpoint_bytes: u64,
    /// How they are held.
    pub format: CheckpointFormat,
    /// Where prompts leave them.
    pub marks: Marks,
}

impl PrefixCache {
    /// Units of so many tokens, and checkpoints of so many bytes together; the rest as it is best.
    pub fn new(unit: HashUnit, checkpoint_bytes: u64) -> Self {
        Self { unit, checkpoint_bytes, format: CheckpointFormat::default(), marks: Marks::default() }
    }

    pub(crate) fn config(&self, facts: &Facts) -> CacheConfig {
        CacheConfig {
            rewrites_last_line: facts.state.hidden.is_some(),
            marks: self.marks,
            ..CacheConfig::new(self.unit, Bytes(self.checkpoint_bytes))
        }
    }
}

/// Which phases an engine has programs for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Prompts to state.
    Prefill,
    /// State to tokens.
    Decode,
    /// Both, in one process.
    Both,
}

impl Role {
    /// Whether prompts are computed.
    pub fn prefills(self) -> bool {
        matches!(self, Self::Prefill | Self::Both)
    }

    /// Whether tokens are drawn.
    pub fn decodes(self) -> bool {
        matches!(self, Self::Decode | Self::Both)
    }
}

/// Bounds on what may wait and on what may be left unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Prompts that may wait for room.
    pub waiting_prompts: usize,
    /// Prompts that take turns, those held up by their readers not counted: more would make all of them late.
    pub prompts_in_turn: usize,
    /// Computed chunks of one prompt that may be unread before it is held up.
    pub unread_chunks: usize,
    /// How long a prompt that waits for room lets others pass.
    pub patience: Duration,
    /// Events of one answer that may be unread before it ends as too slow.
    pub unread_tokens: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            waiting_prompts: 4096,
            prompts_in_turn: 4,
            unread_chunks: 4,
            patience: Duration::from_secs(2),
            unread_tokens: 1024,
        }
    }
}

const CHUNKS: [u32; 3] = [16, 64, 256];
const BATCHES: [u32; 5] = [2, 4, 8, 16, 32];
const PAGE_TOKENS: u32 = 64;
/// Most memory that latents take by default, in bytes.
const LATENT_BYTES: usize = 1 << 30;

/// Drafts of a step where nobody says how many.
const DRAFTS: u32 = 3;

/// How many drafts a step verifies: as many as asked for; where nothing is asked, 3 if the model has a draft layer, else 0.
/// With 0 nothing of the draft layer is loaded, kept or sent.
///
/// # Errors
/// When drafts are asked of a model without a draft layer.
pub fn drafts_of(model: &ModelConfig, asked: Option<u32>) -> Result<u32, Error> {
    match (asked, model.mtp) {
        (Some(asked), None) if asked > 0 => {
            let reason = "the model has no draft layer".to_owned();
            Err(programs::Error::Ladder { field: "drafts", reason }.into())
        }
        (Some(asked), _) => Ok(asked),
        (None, Some(_)) => Ok(DRAFTS),
        (None, None) => Ok(0),
    }
}

/// The shapes an engine has where none are asked for: 32 slots, with pages for the whole context of each unless that
/// takes more than 1 GiB.
pub fn default_ladder(model: &ModelConfig, drafts: u32) -> ShapeLadder {
    let state = if drafts == 0 { model.clone().without_mtp().state() } else { model.state() };
    let context = u32::try_from(model.context).unwrap_or(u32::MAX).min(i32::MAX as u32);
    let slots = BATCHES[BATCHES.len() - 1];
    let page_bytes = state.bytes_per_token().max(1) * PAGE_TOKENS as usize;
    let affordable = u32::try_from(LATENT_BYTES / page_bytes).unwrap_or(u32::MAX);
    let per_sequence = (context + drafts).div_ceil(PAGE_TOKENS);
    let pages = per_sequence.saturating_mul(slots).min(affordable).max(per_sequence);
    ShapeLadder {
        chunks: CHUNKS.to_vec(),
        batches: BATCHES.to_vec(),
        context,
        page_tokens: PAGE_TOKENS,
        pages,
        slots,
        drafts,
        latents: Float::F32,
        lane: 1,
    }
}
