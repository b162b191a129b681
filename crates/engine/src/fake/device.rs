use programs::ShapeLadder;
use programs::sampling::MAX_LOGPROBS;
use statepool::{PageId, SlotId};

use super::memory::{Memory, WIDTH, hidden_of, shape};
use super::window::{Row, draw};
use super::{Script, convolve, fold, logprob};
use crate::{Chunk, ChunkDone, Device, DeviceFault, Draws, Facts, Lease, Rows, SlotRows, SlotState};

/// The device.
#[derive(Debug)]
pub struct FakeDevice {
    facts: Facts,
    memory: Memory,
    /// `[slots + 1]`: steps that a slot's sequence has done.
    turns: Vec<usize>,
    script: Script,
}

impl FakeDevice {
    /// A device of the given shapes and vocabulary. With drafts in the ladder its model has a draft layer.
    pub fn new(ladder: ShapeLadder, vocabulary: usize, script: Script) -> Self {
        let state = shape(&ladder, vocabulary);
        let memory = Memory::new(&ladder, state.latent_layers);
        let turns = vec![0; ladder.slots as usize + 1];
        Self { facts: Facts { state, ladder, poison: true }, memory, turns, script }
    }

    fn step(&mut self, phase: &'static str, length: u32) -> Result<bool, DeviceFault> {
        let done = self.script.step(phase, length);
        if done.as_ref().is_err_and(|fault| fault.lost_state) {
            self.memory = Memory::new(&self.facts.ladder, self.facts.state.latent_layers);
        }
        done
    }

    /// Lists alternatives of every drawn token.
    fn list(&self, draws: &mut Draws) {
        let vocabulary = self.facts.state.vocabulary as i32;
        for token in &draws.tokens {
            draws.logprobs.push(logprob(*token as u32));
            let top = (0..MAX_LOGPROBS as i32).map(|place| (token + place).rem_euclid(vocabulary));
            draws.top_logprobs.extend(top.clone().map(|token| logprob(token as u32)));
            draws.top_ids.extend(top);
        }
    }

    /// Lines of a chunk that a layer has, counted from the chunk's first token.
    fn lines(chunk: &Chunk<'_>, layer: usize) -> usize {
        chunk.tokens.len() - usize::from(layer > 0 && chunk.ends_prompt)
    }

    /// What the chunk left in pages.
    fn pieces(&self, chunk: &Chunk<'_>, pages: &[i32]) -> (Vec<f32>, Vec<f32>) {
        let (mut latents, mut keys) = (Vec::new(), Vec::new());
        let tokens = chunk.tokens.len();
        for layer in 0..self.memory.layers {
            let lines = Self::lines(chunk, layer);
            for position in (chunk.start..).take(lines) {
                latents.extend_from_slice(self.memory.latent(layer, pages, position));
            }
            latents.resize(latents.len() + (tokens - lines) * WIDTH, 0.0);
            let all = self.facts.pools(chunk.start, tokens as u32);
            let own = self.facts.pools(chunk.start, lines as u32);
            keys.extend(own.clone().map(|pool| self.memory.key(layer, pages, pool)));
            keys.resize(keys.len() + all.len() - own.len(), 0.0);
        }
        (latents, keys)
    }
}

impl Device for FakeDevice {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn prefill(&mut self, chunk: &Chunk<'_>) -> Result<ChunkDone, DeviceFault> {
        let corrupt = self.step("prefill", chunk.length)?;
        let pages = self.memory.page_table(chunk.lease);
        let slot = chunk.lease.slot().0 as usize;
        for layer in 0..self.memory.layers {
            let following = chunk.tokens.iter().skip(layer).chain([&chunk.next]);
            let lines = (chunk.start..).zip(following).take(Self::lines(chunk, layer));
            for (position, token) in lines {
                self.memory.line(layer, &pages, slot, position, *token as f32);
            }
        }
        let (mut recurrent, mut tail) = if chunk.start == 0 { (0.0, 0.0) } else { self.memory.slot(slot) };
        let mut before = tail;
        for token in chunk.tokens {
            recurrent = fold(recurrent, *token as f32);
            (before, tail) = (tail, *token as f32);
        }
        self.memory.set_slot(slot, recurrent, tail);
        let end = chunk.start + chunk.tokens.len() as u32;
        let window = self.memory.window();
        self.memory.hidden[slot * window] = hidden_of(tail, end - 1);
        let row = Row {
            pages: &pages,
            slot,
            position: end,
            token: 0,
            accepted: 0,
            recent: &[],
            sampling: (&chunk.sampling.words, &chunk.sampling.reals),
            vocabulary: self.facts.state.vocabulary,
        };
        let drawn = draw(&self.memory, &row, end, (recurrent, convolve(before, tail)), 0);
        let token = if corrupt { -1 } else { drawn };
        let (latents, keys) = self.pieces(chunk, &pages);
        let draws = chunk.ends_prompt.then(|| {
            let mut draws = Draws { counts: vec![1], tokens: vec![token], ..Draws::default() };
            self.list(&mut draws);
            draws
        });
        Ok(ChunkDone { latents, keys, draws })
    }

    fn decode(&mut self, rows: &Rows, draws: &mut Draws) -> Result<(), DeviceFault> {
        let corrupt = self.step("decode", rows.batch)?;
        let width = self.facts.ladder.pages_per_sequence() as usize;
        let window = self.memory.window();
        *draws = Draws::default();
        for row in 0..rows.batch as usize {
            let slot = rows.slots[row] as usize;
            if rows.slots[row] as u32 == self.facts.ladder.trash_slot() {
                draws.counts.push(1);
                draws.tokens.resize(draws.tokens.len() + window, 0);
                continue;
            }
            let step = Row {
                pages: &rows.page_table[row * width..(row + 1) * width],
                slot,
                position: rows.positions[row] as u32,
                token: rows.tokens[row],
                accepted: rows.accepted[row],
                recent: &rows.recent[row * window..(row + 1) * window],
                sampling: rows.sample_row(row),
                vocabulary: self.facts.state.vocabulary,
            };
            let right = self.script.right(self.turns[slot]);
            self.turns[slot] += 1;
            draws.counts.push(step.run(&mut self.memory, right, &mut draws.tokens));
        }
        if corrupt {
            draws.counts.fill(1);
            draws.tokens.fill(-1);
        }
        if rows.logprobs {
            self.list(draws);
        }
        Ok(())
    }

    fn set_sampling(&mut self, _slot: SlotId, _rows: &SlotRows<'_>) -> Result<(), DeviceFault> {
        Ok(())
    }

    fn import_latents(
        &mut self,
        lease: &Lease,
        first: u32,
        tokens: u32,
        latents: &[f32],
        keys: &[f32],
    ) -> Result<(), DeviceFault> {
        let pages = self.memory.page_table(lease);
        let pools = self.facts.pools(first, tokens);
        for layer in 0..self.memory.layers {
            let own = latents.chunks_exact(WIDTH).skip(layer * tokens as usize);
            for (position, latent) in (first..first + tokens).zip(own) {
                self.memory.set_latent(layer, &pages, position, latent);
            }
            for (pool, key) in pools.clone().zip(keys.iter().skip(layer * pools.len())) {
                self.memory.set_key(layer, &pages, pool, *key);
            }
        }
        Ok(())
    }

    fn import_state(&mut self, slot: SlotId, tokens: u32, state: &SlotState) -> Result<(), DeviceFault> {
        self.turns[slot.0 as usize] = 0;
        self.memory.import(slot.0 as usize, tokens, state);
        Ok(())
    }

    fn export_state(&mut self, slot: SlotId, tokens: u32) -> Result<SlotState, DeviceFault> {
        Ok(self.memory.export(slot.0 as usize, tokens))
    }

    fn export_latents(
        &mut self,
        lease: &Lease,
        first: u32,
        tokens: u32,
    ) -> Result<(Vec<f32>, Vec<f32>), DeviceFault> {
        let pages = self.memory.page_table(lease);
        let (mut latents, mut keys) = (Vec::new(), Vec::new());
        for layer in 0..self.memory.layers {
            for position in first..first + tokens {
                latents.extend_from_slice(self.memory.latent(layer, &pages, position));
            }
            keys.extend(self.facts.pools(first, tokens).map(|pool| self.memory.key(layer, &pages, pool)));
        }
        Ok((latents, keys))
    }

    fn copy_page(&mut self, from: PageId, to: PageId) -> Result<(), DeviceFault> {
        self.memory.copy_page(from, to);
        Ok(())
    }

    fn resume(
        &mut self,
        lease: &Lease,
        tokens: u32,
        next: u32,
        state: &SlotState,
    ) -> Result<(), DeviceFault> {
        let (slot, pages) = (lease.slot().0 as usize, self.memory.page_table(lease));
        self.memory.import(slot, tokens, state);
        if self.memory.layers > 1 {
            self.memory.line(1, &pages, slot, tokens - 1, next as f32);
        }
        Ok(())
    }

    fn poison(&mut self, pages: &[PageId], slot: SlotId) -> Result<(), DeviceFault> {
        self.memory.poison(pages, slot);
        Ok(())
    }
}
