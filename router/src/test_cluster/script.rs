use std::collections::{BTreeMap, BTreeSet, hash_map::DefaultHasher};
use std::hash::{Hash, Hasher};

use proto::v1::PrefillRequest;

/// What every request is answered.
#[derive(Clone, Debug, Default)]
pub(crate) enum Script {
    /// Output token `i` is the letter `a + i`.
    #[default]
    Letters,
    /// These ids; the last should be an end token.
    Said(Vec<u32>),
    /// A letter that depends on everything a token may depend on: the tokens before it and their order, which of them were
    /// drawn and how often, and the seed.
    Keyed,
}

/// What workers know of a sequence.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    prompt: Vec<u32>,
    output: Vec<u32>,
    seed: u64,
}

impl Sequence {
    pub(super) fn of(request: &PrefillRequest) -> Self {
        let given = request.prompt_ids.len() - request.output_tokens as usize;
        let (prompt, output) = request.prompt_ids.split_at(given);
        let seed = request.sampling.as_ref().unwrap().seed.unwrap();
        Self { prompt: prompt.to_vec(), output: output.to_vec(), seed }
    }

    pub(super) fn tokens(&self) -> u32 {
        (self.prompt.len() + self.output.len()) as u32
    }
}

impl Script {
    /// Draws the next token of `sequence`.
    pub(super) fn draw(&self, sequence: &mut Sequence) -> u32 {
        let index = sequence.output.len();
        let letter = |index: usize| u32::from(b'a') + index as u32;
        let id = match self {
            Self::Letters => letter(index),
            Self::Said(ids) => ids.get(index).copied().unwrap_or_else(|| letter(index)),
            Self::Keyed => letter(keyed(sequence) as usize % 26),
        };
        sequence.output.push(id);
        id
    }
}

fn keyed(sequence: &Sequence) -> u64 {
    let Sequence { prompt, output, seed } = sequence;
    let seen: BTreeSet<u32> = prompt.iter().copied().collect();
    let mut counts = BTreeMap::new();
    for id in output {
        *counts.entry(id).or_insert(0_u32) += 1;
    }
    let mut hasher = DefaultHasher::new();
    ([&prompt[..], output].concat(), seen, counts, seed).hash(&mut hasher);
    hasher.finish()
}
