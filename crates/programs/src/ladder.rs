use model::StateShape;
use model::weights::Float;

use crate::Error;

/// Every shape the engine compiles before it is ready, and the sizes of the state arrays all programs share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeLadder {
    /// Prefill chunk lengths in tokens, ascending. The largest is the step of the absolute grid; smaller ones serve
    /// only the last, partial chunk of a prompt.
    pub chunks: Vec<u32>,
    /// Decode batch sizes in sequences, ascending, each at least 2.
    pub batches: Vec<u32>,
    /// Longest sequence in tokens, prompt and output together.
    pub context: u32,
    /// Tokens in one latent page.
    pub page_tokens: u32,
    /// Latent pages that can be leased; one more is allocated as trash.
    pub pages: u32,
    /// Slots that can be leased; one more is allocated as trash.
    pub slots: u32,
    /// Tokens that the draft layer drafts for a decode step to verify, up to [`MAX_DRAFTS`]; 0 where there is none.
    pub drafts: u32,
    /// Width of cached latents and pooled index keys.
    pub latents: Float,
    /// Cached latents are filled up to a multiple of so many channels, as the device lays memory out: a TPU copies the whole
    /// cache at every call where its rows are no multiple of 128. 1 where it does not matter.
    pub lane: u32,
}

/// Most drafts of a step.
pub const MAX_DRAFTS: u32 = 5;

impl ShapeLadder {
    /// Refuses ladders that no program could be made for.
    ///
    /// # Errors
    /// [`Error::Ladder`] naming the field.
    pub fn check(&self) -> Result<(), Error> {
        let fail = |field, reason: &str| Err(Error::Ladder { field, reason: reason.to_owned() });
        let ascending = |values: &[u32]| values.windows(2).all(|w| w[0] < w[1]);
        if self.chunks.is_empty() || !ascending(&self.chunks) || self.chunks[0] == 0 {
            return fail("chunks", "must be ascending lengths of at least 1 token");
        }
        if !ascending(&self.batches) || self.batches.first().is_some_and(|&batch| batch < 2) {
            return fail("batches", "must be ascending sizes of at least 2 sequences");
        }
        if self.context == 0 || self.context > i32::MAX as u32 {
            return fail("context", "must be at least 1 token and fit 31 bits");
        }
        if self.page_tokens == 0 {
            return fail("page_tokens", "must be at least 1");
        }
        if self.drafts > MAX_DRAFTS {
            return fail("drafts", "must be at most 5");
        }
        if self.lane == 0 {
            return fail("lane", "must be at least 1");
        }
        if self.pages == 0 || self.slots == 0 {
            return fail(if self.pages == 0 { "pages" } else { "slots" }, "must be at least 1");
        }
        Ok(())
    }

    /// Refuses ladders that no program of a model with this state could be made for.
    ///
    /// # Errors
    /// [`Error::Ladder`] naming the field.
    pub fn check_for(&self, state: &StateShape) -> Result<(), Error> {
        self.check()?;
        match state.index {
            Some(index) if !(self.page_tokens as usize).is_multiple_of(index.pool) => {
                let reason = format!("must be a multiple of the indexer's pool, {} tokens", index.pool);
                Err(Error::Ladder { field: "page_tokens", reason })
            }
            _ => Ok(()),
        }
    }

    /// Entries of one sequence's page table: room for the longest sequence and the drafts after it.
    #[must_use]
    pub fn pages_per_sequence(&self) -> u32 {
        (self.context + self.drafts).div_ceil(self.page_tokens)
    }

    /// Tokens of a decode step: the one consumed and the drafts.
    #[must_use]
    pub fn window(&self) -> u32 {
        self.drafts + 1
    }

    /// Places of the ring of raw index keys for pools of `pool` tokens: an open pool, and a window that may be done again.
    #[must_use]
    pub fn ring(&self, pool: usize) -> usize {
        (pool + self.drafts as usize).next_multiple_of(pool)
    }

    /// Index of the page that padded rows write to; also the number of leasable pages.
    #[must_use]
    pub fn trash_page(&self) -> u32 {
        self.pages
    }

    /// Index of the slot that padded rows use; also the number of leasable slots.
    #[must_use]
    pub fn trash_slot(&self) -> u32 {
        self.slots
    }

    /// Chunk length of the absolute grid.
    #[must_use]
    pub fn grid(&self) -> u32 {
        self.chunks.last().copied().unwrap_or(1)
    }

    /// The shortest chunk program that holds `tokens`, if any.
    #[must_use]
    pub fn chunk_for(&self, tokens: u32) -> Option<u32> {
        self.chunks.iter().copied().find(|&chunk| chunk >= tokens)
    }

    /// The smallest batch program that holds `rows`, if any.
    #[must_use]
    pub fn batch_for(&self, rows: u32) -> Option<u32> {
        self.batches.iter().copied().find(|&batch| batch >= rows)
    }
}
