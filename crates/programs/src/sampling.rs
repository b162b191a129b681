//! How the next token is chosen: what a request may ask for, and the part of a program that obeys it.
//!
//! [`Asked`] is what a client wrote, [`Sampling`] what it means once every field is in range. The engine packs it to a
//! [`SampleRow`], one row of a program's inputs, and [`emit()`] draws inside the program, so that logits never leave the
//! device. A draw depends on the row's logits, its seed and the position of the token to be drawn, and on nothing else:
//! not on the batch, not on the worker.

mod asked;
mod emit;
mod noise;
mod row;

pub use asked::{Asked, Refused};
pub use emit::{Drawn, Rows, count, emit};
pub use row::{REALS, SampleRow, WORDS};

/// Most stop strings a request may carry.
pub const MAX_STOPS: usize = 64;
/// Most alternatives a token's log-probabilities can list; the width of [`Drawn::top_ids`].
pub const MAX_LOGPROBS: u32 = 20;
/// Temperatures below this one are greedy: dividing by them would overflow.
pub const MIN_TEMPERATURE: f32 = 1e-5;

/// How the tokens of one request are chosen and when they end; every field is in range.
///
/// Made by [`Asked::checked`]. The filters apply in the order: logit bias, repetition penalty, presence and frequency
/// penalties, temperature, top-k, top-p, min-p.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Sampling {
    /// Most tokens to produce, at least 1; `None`: as many as the context holds.
    pub max_tokens: Option<u32>,
    /// Divides the logits; 0 is greedy (the likeliest token, the lowest id among equals).
    pub temperature: f32,
    /// Keep the smallest set of likeliest tokens whose probabilities reach this sum, in (0, 1]; 1 keeps all.
    pub top_p: f32,
    /// Keep this many likeliest tokens, and those equal to the last one; 0 keeps all.
    pub top_k: u32,
    /// Keep tokens at least this fraction as likely as the likeliest, in [0, 1]; 0 keeps all.
    pub min_p: f32,
    /// Names the noise: the same seed gives the same tokens.
    pub seed: u64,
    /// Divides the positive and multiplies the negative logits of tokens in the prompt or the output; 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted once from the logit of each token in the output, in [-2, 2].
    pub presence_penalty: f32,
    /// Subtracted from a token's logit for each time it is in the output, in [-2, 2].
    pub frequency_penalty: f32,
    /// Texts that end the output; at most [`MAX_STOPS`], none of them empty.
    pub stop: Vec<String>,
    /// Token ids that end the output, besides the model's own.
    pub stop_token_ids: Vec<u32>,
    /// Go on past the model's end tokens.
    pub ignore_eos: bool,
    /// Report each token's log-probability and this many alternatives, at most [`MAX_LOGPROBS`].
    pub logprobs: Option<u32>,
    /// Added to the logits of single tokens, in [-100, 100]; sorted by token, each token once.
    pub logit_bias: Vec<(u32, f32)>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            max_tokens: None,
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            seed: 0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            stop: Vec::new(),
            stop_token_ids: Vec::new(),
            ignore_eos: false,
            logprobs: None,
            logit_bias: Vec::new(),
        }
    }
}

impl Sampling {
    /// Whether the draw reads which tokens the prompt and the output hold.
    pub fn penalises(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }

    /// Whether the slot's rows (prompt seen, output counts, logit bias) must be written before the first draw.
    /// A row that asks for none of these never reads them.
    pub fn needs_slot_rows(&self) -> bool {
        self.penalises() || !self.logit_bias.is_empty()
    }
}

#[cfg(test)]
mod tests;
