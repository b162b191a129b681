//! A deterministic device without a plugin: stands in for the real one where rooms above are tested. It is
//! always there, as a feature would have everything above this room built once for programs and once more for tests.
//!
//! It keeps the real arrays' shapes and addresses: a token drawn is a hash of everything the sequence should have in its
//! pages and its slot, so a page held twice, a missed import or a stale slot changes the text, and so does a window that is
//! rolled back to another place than the one it counts to. [`expected`] computes the same from the tokens alone, with and
//! without drafts. Unwritten state is NaN, and leases begin so.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use programs::sampling::SampleRow;

use crate::DeviceFault;

mod device;
mod memory;
mod window;

pub use device::FakeDevice;

use memory::{POOL, pool_key};

/// Small primes keep every value exact in f32.
const PRIME: u64 = 65_521;

/// What goes wrong, how long steps take and which drafts are right. A clone steers the same device.
#[derive(Clone, Debug, Default)]
pub struct Script {
    shared: Arc<Mutex<Steer>>,
}

#[derive(Clone, Debug, Default)]
struct Steer {
    step: Duration,
    fault: Option<DeviceFault>,
    corrupt: bool,
    accept: Vec<u32>,
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

    /// How many drafts are right in each step of a sequence, over and over from its first step on. All of them are, where
    /// nothing is said. Drafts after the first wrong one are right for what they follow, and do not count.
    pub fn accept(&self, pattern: &[u32]) {
        self.with(|steer| steer.accept = pattern.to_vec());
    }

    /// Program lengths of the steps run so far: ("prefill", chunk) or ("decode", batch).
    pub fn steps(&self) -> Vec<(&'static str, u32)> {
        self.with(|steer| steer.calls.clone())
    }

    fn with<T>(&self, steer: impl FnOnce(&mut Steer) -> T) -> T {
        steer(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Drafts that are right in a sequence's step `turn`.
    fn right(&self, turn: usize) -> usize {
        self.with(|steer| {
            let at = turn % steer.accept.len().max(1);
            steer.accept.get(at).map_or(usize::MAX, |right| *right as usize)
        })
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

/// The `count` tokens that follow `prompt`.
pub fn expected(prompt: &[u32], row: &SampleRow, vocabulary: usize, count: usize) -> Vec<u32> {
    let mut tokens = prompt.to_vec();
    for _ in 0..count {
        let mut hash = begin((&row.words, &row.reals), tokens.len() as u32);
        let mut recurrent = 0.0;
        for token in &tokens {
            hash = mix(hash, *token as f32);
            recurrent = fold(recurrent, *token as f32);
        }
        for pool in tokens.chunks_exact(POOL) {
            hash = mix(hash, pool_key(pool.iter().map(|token| *token as f32)));
        }
        let last = |back: usize| tokens.len().checked_sub(back).map_or(0.0, |at| tokens[at] as f32);
        hash = mix(mix(hash, recurrent), convolve(last(2), last(1)));
        tokens.push((hash % vocabulary as u64) as u32);
    }
    tokens.split_off(prompt.len())
}

/// Log-probability that the device gives a token, where a row asks.
pub fn logprob(token: u32) -> f32 {
    -(token as f32 + 1.0) / 128.0
}

/// The recurrent state after a token.
fn fold(recurrent: f32, token: f32) -> f32 {
    if recurrent.is_nan() || token.is_nan() {
        return f32::NAN;
    }
    ((recurrent as u64 * 31 + token as u64 + 1) % PRIME) as f32
}

/// What the short convolution makes of a token and the one before it.
fn convolve(before: f32, token: f32) -> f32 {
    before + 3.0 * token
}

fn begin(row: (&[u32], &[f32]), position: u32) -> u64 {
    let words = row.0.iter().fold(u64::from(position), |hash, word| mix(hash, *word as f32));
    row.1.iter().fold(words, |hash, real| mix(hash, *real))
}

fn mix(hash: u64, value: f32) -> u64 {
    (hash ^ u64::from(value.to_bits())).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}
