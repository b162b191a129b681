//! The fake device's state arrays and who lies where in them.

use model::{IndexShape, StateShape};
use programs::ShapeLadder;
use statepool::{PageId, SlotId};

use super::PRIME;
use crate::{Lease, SlotState};

/// Tokens of an index pool.
pub(super) const POOL: usize = 4;
pub(super) const WIDTH: usize = 2;
const RECURRENT: usize = 4;
const TAILS: usize = 3;

/// One latent layer; with drafts the draft layer's, too. Every latent is the line's token and its position; the draft
/// layer's line at a position has the token after it.
pub(super) fn shape(ladder: &ShapeLadder, vocabulary: usize) -> StateShape {
    StateShape {
        latent_layers: if ladder.drafts > 0 { 2 } else { 1 },
        latent_width: WIDTH,
        recurrent_layers: 1,
        heads: 1,
        key_dim: 2,
        value_dim: 2,
        tail_rows: 1,
        tail_width: 1,
        index: Some(IndexShape { dim: 1, pool: POOL }),
        hidden: (ladder.drafts > 0).then_some(1),
        vocabulary,
    }
}

/// A pool's key, of its tokens in order.
pub(super) fn pool_key(tokens: impl Iterator<Item = f32>) -> f32 {
    tokens.zip(1u8..).map(|(token, place)| (token + 1.0) * f32::from(place)).sum()
}

/// The vector that the draft layer continues from after a token.
pub(super) fn hidden_of(token: f32, position: u32) -> f32 {
    ((token as u64 * 31 + u64::from(position)) % PRIME) as f32
}

#[derive(Debug)]
pub(super) struct Memory {
    ladder: ShapeLadder,
    pub(super) layers: usize,
    /// f32 `[layers, pages + 1, page_tokens, WIDTH]`.
    latents: Vec<f32>,
    /// f32 `[layers, pages + 1, page_tokens]`: a pool's key lies where its last token does.
    keys: Vec<f32>,
    /// f32 `[layers, slots + 1, ring, 2]`.
    rings: Vec<f32>,
    /// f32 `[slots + 1, RECURRENT]`: before the window, where there is one.
    recurrent: Vec<f32>,
    /// f32 `[slots + 1, TAILS]`: likewise.
    tails: Vec<f32>,
    /// f32 `[slots + 1, T]`: the window's tokens.
    pub(super) windows: Vec<f32>,
    /// f32 `[slots + 1, T]`: one channel.
    pub(super) hidden: Vec<f32>,
}

impl Memory {
    /// All of it NaN.
    pub(super) fn new(ladder: &ShapeLadder, layers: usize) -> Self {
        let rows = (ladder.pages as usize + 1) * ladder.page_tokens as usize;
        let slots = ladder.slots as usize + 1;
        let window = ladder.window() as usize;
        let nan = |count| vec![f32::NAN; count];
        Self {
            ladder: ladder.clone(),
            layers,
            latents: nan(layers * rows * WIDTH),
            keys: nan(layers * rows),
            rings: nan(layers * slots * ladder.ring(POOL) * 2),
            recurrent: nan(slots * RECURRENT),
            tails: nan(slots * TAILS),
            windows: nan(slots * window),
            hidden: nan(slots * window),
        }
    }

    pub(super) fn copy_page(&mut self, from: PageId, to: PageId) {
        let (page, pages) = (self.ladder.page_tokens as usize, self.ladder.pages as usize + 1);
        let copy = |values: &mut [f32], layer: usize, size: usize| {
            let [from, to] = [from, to].map(|page| (layer * pages + page.0 as usize) * size);
            values.copy_within(from..from + size, to);
        };
        for layer in 0..self.layers {
            copy(&mut self.latents, layer, page * WIDTH);
            copy(&mut self.keys, layer, page);
        }
    }

    /// Fills pages and a slot with NaN.
    pub(super) fn poison(&mut self, own: &[PageId], slot: SlotId) {
        let (page, slots) = (self.ladder.page_tokens as usize, self.ladder.slots as usize + 1);
        let pages = self.ladder.pages as usize + 1;
        let (slot, window, ring) = (slot.0 as usize, self.window(), self.ladder.ring(POOL) * 2);
        let wipe = |values: &mut [f32], row: usize, size: usize| {
            values[row * size..(row + 1) * size].fill(f32::NAN);
        };
        for layer in 0..self.layers {
            for index in own {
                let row = layer * pages + index.0 as usize;
                wipe(&mut self.latents, row, page * WIDTH);
                wipe(&mut self.keys, row, page);
            }
            wipe(&mut self.rings, layer * slots + slot, ring);
        }
        wipe(&mut self.recurrent, slot, RECURRENT);
        wipe(&mut self.tails, slot, TAILS);
        wipe(&mut self.windows, slot, window);
        wipe(&mut self.hidden, slot, window);
    }

    pub(super) fn window(&self) -> usize {
        self.ladder.window() as usize
    }

    pub(super) fn page_table(&self, lease: &Lease) -> Vec<i32> {
        let mut pages = vec![0; self.ladder.pages_per_sequence() as usize];
        lease.write_row(&mut pages);
        pages
    }

    /// Row of a position among those of all pages.
    fn row(&self, layer: usize, pages: &[i32], position: u32) -> usize {
        let page_tokens = self.ladder.page_tokens;
        let trash = self.ladder.trash_page() as usize;
        let page = pages.get((position / page_tokens) as usize).map_or(trash, |page| *page as usize);
        let page = layer * (self.ladder.pages as usize + 1) + page;
        page * page_tokens as usize + (position % page_tokens) as usize
    }

    fn ring(&self, layer: usize, slot: usize, position: u32) -> usize {
        let ring = self.ladder.ring(POOL);
        ((layer * (self.ladder.slots as usize + 1) + slot) * ring + position as usize % ring) * 2
    }

    /// The token of a line, where the line is that position's.
    pub(super) fn token(&self, layer: usize, pages: &[i32], position: u32) -> Option<f32> {
        let at = self.row(layer, pages, position) * WIDTH;
        (self.latents[at + 1] == position as f32).then_some(self.latents[at])
    }

    pub(super) fn latent(&self, layer: usize, pages: &[i32], position: u32) -> &[f32] {
        let at = self.row(layer, pages, position) * WIDTH;
        &self.latents[at..at + WIDTH]
    }

    /// Key of a pool.
    pub(super) fn key(&self, layer: usize, pages: &[i32], pool: u32) -> f32 {
        self.keys[self.row(layer, pages, last_of(pool))]
    }

    pub(super) fn set_latent(&mut self, layer: usize, pages: &[i32], position: u32, latent: &[f32]) {
        let at = self.row(layer, pages, position) * WIDTH;
        self.latents[at..at + WIDTH].copy_from_slice(latent);
    }

    pub(super) fn set_key(&mut self, layer: usize, pages: &[i32], pool: u32, key: f32) {
        let at = self.row(layer, pages, last_of(pool));
        self.keys[at] = key;
    }

    /// Writes a line, and the key of the pool that it completes.
    pub(super) fn line(&mut self, layer: usize, pages: &[i32], slot: usize, position: u32, token: f32) {
        self.set_latent(layer, pages, position, &[token, position as f32]);
        let at = self.ring(layer, slot, position);
        (self.rings[at], self.rings[at + 1]) = (token, position as f32);
        let pool = position / POOL as u32;
        if position == last_of(pool) {
            let tokens = (last_of(pool) + 1 - POOL as u32..=position).map(|position| {
                let at = self.ring(layer, slot, position);
                if self.rings[at + 1] == position as f32 { self.rings[at] } else { f32::NAN }
            });
            let key = pool_key(tokens);
            self.set_key(layer, pages, pool, key);
        }
    }

    /// The recurrent state, and the token that the convolution remembers.
    pub(super) fn slot(&self, slot: usize) -> (f32, f32) {
        (self.recurrent[slot * RECURRENT], self.tails[slot * TAILS])
    }

    pub(super) fn set_slot(&mut self, slot: usize, recurrent: f32, tail: f32) {
        self.recurrent[slot * RECURRENT] = recurrent;
        self.tails[slot * TAILS] = tail;
    }

    /// Lines of a layer after `tokens` tokens: the draft layer lacks the last one's.
    fn lines(layer: usize, tokens: u32) -> u32 {
        tokens.saturating_sub(layer as u32)
    }

    /// Positions of a layer's open pool after `tokens` tokens.
    fn open(layer: usize, tokens: u32) -> std::ops::Range<u32> {
        let lines = Self::lines(layer, tokens);
        lines / POOL as u32 * POOL as u32..lines
    }

    pub(super) fn export(&self, slot: usize, tokens: u32) -> SlotState {
        let mut index_tail = vec![0.0; self.layers * POOL * 2];
        for (layer, tail) in index_tail.chunks_exact_mut(POOL * 2).enumerate() {
            for (position, row) in Self::open(layer, tokens).zip(tail.chunks_exact_mut(2)) {
                let at = self.ring(layer, slot, position);
                row.copy_from_slice(&self.rings[at..at + 2]);
            }
        }
        let hidden = slot * self.window()..slot * self.window() + self.layers - 1;
        SlotState {
            recurrent: self.recurrent[slot * RECURRENT..(slot + 1) * RECURRENT].to_vec(),
            tails: self.tails[slot * TAILS..(slot + 1) * TAILS].to_vec(),
            index_tail,
            hidden: self.hidden[hidden].to_vec(),
        }
    }

    pub(super) fn import(&mut self, slot: usize, tokens: u32, state: &SlotState) {
        self.recurrent[slot * RECURRENT..(slot + 1) * RECURRENT].copy_from_slice(&state.recurrent);
        self.tails[slot * TAILS..(slot + 1) * TAILS].copy_from_slice(&state.tails);
        for (layer, tail) in state.index_tail.chunks_exact(POOL * 2).enumerate() {
            for (position, row) in Self::open(layer, tokens).zip(tail.chunks_exact(2)) {
                let at = self.ring(layer, slot, position);
                self.rings[at..at + 2].copy_from_slice(row);
            }
        }
        let first = slot * self.window();
        self.hidden[first..first + state.hidden.len()].copy_from_slice(&state.hidden);
    }
}

/// Position of a pool's last token.
fn last_of(pool: u32) -> u32 {
    (pool + 1) * POOL as u32 - 1
}
