//! A deterministic device without a plugin: stands in for the real one where rooms above are tested.
//!
//! It keeps the real arrays' shapes and addresses: a token drawn is a hash of everything the sequence should have in its
//! pages and its slot, so a page held twice, a missed import or a stale slot changes the text. [`expected`] computes the
//! same from the tokens alone. Unwritten state is NaN.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use model::StateShape;
use programs::ShapeLadder;
use programs::sampling::SampleRow;
use statepool::{Lease, SlotId};

use crate::{Chunk, ChunkDone, Device, DeviceFault, Draws, Facts, Rows, SlotRows, SlotState};

/// Small primes keep every value exact in f32.
const PRIME: u64 = 65_521;
const WIDTH: usize = 2;
const RECURRENT: usize = 4;
const TAILS: usize = 3;

/// What goes wrong, and how long steps take. A clone steers the same device.
#[derive(Clone, Debug, Default)]
pub struct Script {
    shared: Arc<Mutex<Steer>>,
}

#[derive(Clone, Debug, Default)]
struct Steer {
    step: Duration,
    fault: Option<DeviceFault>,
    corrupt: bool,
    calls: Vec<(&'static str, u32)>,
}

impl Script {
    /// Every prefill and decode step takes this long from now on.
    pub fn slow(&self, step: Duration) {
        self.with(|steer| steer.step = step);
    }

    /// The next prefill or decode step fails.
    pub fn fail_next_step(&self, lost_state: bool) {
        let fault = DeviceFault { message: "scripted fault".to_owned(), lost_state };
        self.with(|steer| steer.fault = Some(fault));
    }

    /// The next drawn tokens come from logits that are not finite.
    pub fn corrupt_next_draw(&self) {
        self.with(|steer| steer.corrupt = true);
    }

    /// Program lengths of the steps run so far: ("prefill", chunk) or ("decode", batch).
    pub fn steps(&self) -> Vec<(&'static str, u32)> {
        self.with(|steer| steer.calls.clone())
    }

    fn with<T>(&self, steer: impl FnOnce(&mut Steer) -> T) -> T {
        steer(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Called at each step.
    fn step(&self, phase: &'static str, length: u32) -> Result<bool, DeviceFault> {
        let (step, fault, corrupt) = self.with(|steer| {
            steer.calls.push((phase, length));
            (steer.step, steer.fault.take(), std::mem::take(&mut steer.corrupt))
        });
        if !step.is_zero() {
            std::thread::sleep(step);
        }
        fault.map_or(Ok(corrupt), Err)
    }
}

/// The device.
#[derive(Debug)]
pub struct FakeDevice {
    facts: Facts,
    /// f32 `[pages + 1, page_tokens, WIDTH]`: one latent layer.
    latents: Vec<f32>,
    /// f32 `[slots + 1, RECURRENT]`.
    recurrent: Vec<f32>,
    /// f32 `[slots + 1, TAILS]`.
    tails: Vec<f32>,
    script: Script,
}

impl FakeDevice {
    /// A device of the given shapes and vocabulary.
    pub fn new(ladder: ShapeLadder, vocabulary: usize, script: Script) -> Self {
        let state = StateShape {
            latent_layers: 1,
            latent_width: WIDTH,
            recurrent_layers: 1,
            heads: 1,
            key_dim: 2,
            value_dim: 2,
            tail_rows: 1,
            tail_width: 1,
            vocabulary,
        };
        let mut device = Self {
            facts: Facts { state, ladder },
            latents: Vec::new(),
            recurrent: Vec::new(),
            tails: Vec::new(),
            script,
        };
        device.poison();
        device
    }

    fn poison(&mut self) {
        let ladder = &self.facts.ladder;
        let rows = (ladder.pages as usize + 1) * ladder.page_tokens as usize;
        let slots = ladder.slots as usize + 1;
        self.latents = vec![f32::NAN; rows * WIDTH];
        self.recurrent = vec![f32::NAN; slots * RECURRENT];
        self.tails = vec![f32::NAN; slots * TAILS];
    }

    fn step(&mut self, phase: &'static str, length: u32) -> Result<bool, DeviceFault> {
        let done = self.script.step(phase, length);
        if done.as_ref().is_err_and(|fault| fault.lost_state) {
            self.poison();
        }
        done
    }

    /// Where a position's latent lies.
    fn row(&self, pages: &[i32], position: u32) -> usize {
        let page_tokens = self.facts.ladder.page_tokens;
        let trash = self.facts.ladder.trash_page() as usize;
        let page = pages.get((position / page_tokens) as usize).map_or(trash, |page| *page as usize);
        (page * page_tokens as usize + (position % page_tokens) as usize) * WIDTH
    }

    /// Takes one token into the state.
    fn consume(&mut self, pages: &[i32], slot: usize, position: u32, token: u32) {
        let at = self.row(pages, position);
        self.latents[at] = token as f32;
        self.latents[at + 1] = position as f32;
        let recurrent = &mut self.recurrent[slot * RECURRENT];
        let before = if position == 0 { 0.0 } else { *recurrent };
        *recurrent = fold(before, token);
        self.tails[slot * TAILS] = token as f32;
    }

    /// Draws the token at `position` from everything the sequence has; -1 when some of it was never written.
    fn draw(&self, pages: &[i32], slot: usize, position: u32, row: (&[u32], &[f32])) -> i32 {
        let mut hash = begin(row, position);
        for before in 0..position {
            let at = self.row(pages, before);
            if self.latents[at + 1] != before as f32 {
                return -1;
            }
            hash = mix(hash, self.latents[at]);
        }
        let hash = mix(mix(hash, self.recurrent[slot * RECURRENT]), self.tails[slot * TAILS]);
        if !self.recurrent[slot * RECURRENT].is_finite() {
            return -1;
        }
        (hash % self.facts.state.vocabulary as u64) as i32
    }
}

/// The `count` tokens that follow `prompt`.
pub fn expected(prompt: &[u32], row: &SampleRow, vocabulary: usize, count: usize) -> Vec<u32> {
    let mut tokens = prompt.to_vec();
    for _ in 0..count {
        let mut hash = begin((&row.words, &row.reals), tokens.len() as u32);
        let mut recurrent = 0.0;
        for token in &tokens {
            hash = mix(hash, *token as f32);
            recurrent = fold(recurrent, *token);
        }
        let last = tokens.last().map_or(f32::NAN, |token| *token as f32);
        let hash = mix(mix(hash, recurrent), last);
        tokens.push((hash % vocabulary as u64) as u32);
    }
    tokens.split_off(prompt.len())
}

fn fold(recurrent: f32, token: u32) -> f32 {
    if recurrent.is_nan() {
        return recurrent;
    }
    ((recurrent as u64 * 31 + u64::from(token) + 1) % PRIME) as f32
}

fn begin(row: (&[u32], &[f32]), position: u32) -> u64 {
    let words = row.0.iter().fold(u64::from(position), |hash, word| mix(hash, *word as f32));
    row.1.iter().fold(words, |hash, real| mix(hash, *real))
}

fn mix(hash: u64, value: f32) -> u64 {
    (hash ^ u64::from(value.to_bits())).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

impl Device for FakeDevice {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn prefill(&mut self, chunk: &Chunk<'_>) -> Result<ChunkDone, DeviceFault> {
        let corrupt = self.step("prefill", chunk.length)?;
        let mut pages = vec![0; self.facts.ladder.pages_per_sequence() as usize];
        chunk.lease.write_row(&mut pages);
        let slot = chunk.lease.slot().0 as usize;
        let mut latents = Vec::new();
        for (position, token) in (chunk.start..).zip(chunk.tokens) {
            self.consume(&pages, slot, position, *token);
            let at = self.row(&pages, position);
            latents.extend_from_slice(&self.latents[at..at + WIDTH]);
        }
        let end = chunk.start + chunk.tokens.len() as u32;
        let row = (chunk.sampling.words.as_slice(), chunk.sampling.reals.as_slice());
        let token = if corrupt { -1 } else { self.draw(&pages, slot, end, row) };
        let draws = chunk.ends_prompt.then(|| Draws { tokens: vec![token], ..Draws::default() });
        Ok(ChunkDone { latents, draws })
    }

    fn decode(&mut self, rows: &Rows, draws: &mut Draws) -> Result<(), DeviceFault> {
        let corrupt = self.step("decode", rows.batch)?;
        let width = self.facts.ladder.pages_per_sequence() as usize;
        draws.tokens.clear();
        for row in 0..rows.batch as usize {
            let pages = &rows.page_table[row * width..(row + 1) * width];
            let slot = rows.slots[row] as usize;
            let position = rows.positions[row] as u32;
            self.consume(pages, slot, position, rows.tokens[row] as u32);
            let token = self.draw(pages, slot, position + 1, rows.sample_row(row));
            draws.tokens.push(if corrupt { -1 } else { token });
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
        _tokens: u32,
        latents: &[f32],
    ) -> Result<(), DeviceFault> {
        let mut pages = vec![0; self.facts.ladder.pages_per_sequence() as usize];
        lease.write_row(&mut pages);
        for (position, latent) in (first..).zip(latents.chunks_exact(WIDTH)) {
            let at = self.row(&pages, position);
            self.latents[at..at + WIDTH].copy_from_slice(latent);
        }
        Ok(())
    }

    fn import_state(&mut self, slot: SlotId, state: &SlotState) -> Result<(), DeviceFault> {
        let slot = slot.0 as usize;
        self.recurrent[slot * RECURRENT..(slot + 1) * RECURRENT].copy_from_slice(&state.recurrent);
        self.tails[slot * TAILS..(slot + 1) * TAILS].copy_from_slice(&state.tails);
        Ok(())
    }

    fn export_state(&mut self, slot: SlotId) -> Result<SlotState, DeviceFault> {
        let slot = slot.0 as usize;
        Ok(SlotState {
            recurrent: self.recurrent[slot * RECURRENT..(slot + 1) * RECURRENT].to_vec(),
            tails: self.tails[slot * TAILS..(slot + 1) * TAILS].to_vec(),
        })
    }
}
