//! A row of a program's sampling inputs: one sequence's [`Sampling`] as numbers.

use super::Sampling;

/// Width of the `SampleWords` input.
pub const WORDS: usize = 4;
/// Width of the `SampleReals` input.
pub const REALS: usize = 6;

/// Columns of `SampleWords`, u32.
pub(super) mod word {
    pub(in crate::sampling) const SEED_LOW: usize = 0;
    pub(in crate::sampling) const SEED_HIGH: usize = 1;
    /// Tokens to keep; 0 keeps all.
    pub(in crate::sampling) const TOP_K: usize = 2;
    /// Sum of the `asks` bits.
    pub(in crate::sampling) const ASKS: usize = 3;
}

/// Columns of `SampleReals`, f32.
pub(super) mod real {
    pub(in crate::sampling) const TEMPERATURE: usize = 0;
    pub(in crate::sampling) const TOP_P: usize = 1;
    pub(in crate::sampling) const MIN_P: usize = 2;
    pub(in crate::sampling) const REPETITION: usize = 3;
    pub(in crate::sampling) const PRESENCE: usize = 4;
    pub(in crate::sampling) const FREQUENCY: usize = 5;
}

/// Bits of `word::ASKS`: what the row asks for beyond its own reals. The program skips whatever no row of its batch asks.
pub(super) mod asks {
    /// The slot's logit biases.
    pub(in crate::sampling) const BIAS: u32 = 1;
    /// The slot's prompt tokens and output counts.
    pub(in crate::sampling) const PENALTIES: u32 = 2;
    /// Log-probabilities of the drawn token and the likeliest ones.
    pub(in crate::sampling) const LOGPROBS: u32 = 4;
    /// A limit on the likeliest tokens: top-k or top-p.
    pub(in crate::sampling) const LIMIT: u32 = 8;
}

/// One row of `SampleWords` and `SampleReals`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampleRow {
    pub words: [u32; WORDS],
    pub reals: [f32; REALS],
}

impl SampleRow {
    /// The row of a sequence that samples so.
    pub fn pack(sampling: &Sampling) -> Self {
        let mut asked = 0;
        let mut ask = |bit, wanted| asked |= if wanted { bit } else { 0 };
        ask(asks::BIAS, !sampling.logit_bias.is_empty());
        ask(asks::PENALTIES, sampling.penalises());
        ask(asks::LOGPROBS, sampling.logprobs.is_some());
        ask(asks::LIMIT, sampling.temperature > 0.0 && (sampling.top_k > 0 || sampling.top_p < 1.0));
        let mut words = [0; WORDS];
        words[word::SEED_LOW] = sampling.seed as u32;
        words[word::SEED_HIGH] = (sampling.seed >> 32) as u32;
        words[word::TOP_K] = sampling.top_k;
        words[word::ASKS] = asked;
        let mut reals = [0.0; REALS];
        reals[real::TEMPERATURE] = sampling.temperature;
        reals[real::TOP_P] = sampling.top_p;
        reals[real::MIN_P] = sampling.min_p;
        reals[real::REPETITION] = sampling.repetition_penalty;
        reals[real::PRESENCE] = sampling.presence_penalty;
        reals[real::FREQUENCY] = sampling.frequency_penalty;
        Self { words, reals }
    }

    /// The row of a place in the batch that no sequence fills: greedy, asking for nothing.
    pub fn padding() -> Self {
        Self::pack(&Sampling { temperature: 0.0, ..Sampling::default() })
    }
}
