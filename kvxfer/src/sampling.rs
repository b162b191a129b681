use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::layout::Layout;

#[cfg(test)]
mod tests;

/// Where sampling stands after the prompt: what the decode side needs beside the arrays to draw the next token as the
/// prefill side would have.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingState {
    /// Noise of a token is keyed by (seed, position).
    pub seed: u64,
    /// Position of `first`, which is the state's position: the state has not consumed it yet.
    pub position: u32,
    pub first: FirstToken,
    /// Distinct ids in the prompt, ascending; the repetition penalty needs them.
    pub prompt_ids: Vec<u32>,
    /// (id, times drawn so far), ids ascending, `first` included; presence and frequency penalties need them.
    pub output_counts: Vec<(u32, u32)>,
}

/// The token drawn from the state after the whole prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstToken {
    pub id: u32,
    /// Natural log, of the model's own distribution.
    pub logprob: f32,
    /// The likeliest ids with their logprobs; empty unless asked for.
    pub top: Vec<(u32, f32)>,
}

/// Whose fault: the sender's. Sending the same bytes again does not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sampling state: {field} {fault}")]
pub struct BadSampling {
    pub field: &'static str,
    pub fault: &'static str,
}

/// Alternatives a token can carry.
const MOST_TOP: usize = 64;
/// seed, position, first id, first logprob, three list lengths
const FIXED_BYTES: usize = 8 + 4 + 4 + 4 + 3 * 4;

impl SamplingState {
    /// The largest encoding a sequence of this model and length can have.
    pub(crate) fn most_bytes(layout: &Layout, state_pos: u32) -> u64 {
        let ids = u64::from(state_pos.min(layout.vocabulary));
        FIXED_BYTES as u64 + 8 * MOST_TOP as u64 + 4 * ids + 8 * u64::from(layout.vocabulary)
    }

    /// Little-endian: seed u64, position, id, logprob f32, then each list as its length and its entries.
    pub fn encode(&self) -> Bytes {
        let lists = 8 * self.first.top.len() + 4 * self.prompt_ids.len() + 8 * self.output_counts.len();
        let mut out = BytesMut::with_capacity(FIXED_BYTES + lists);
        out.put_u64_le(self.seed);
        out.put_u32_le(self.position);
        out.put_u32_le(self.first.id);
        out.put_f32_le(self.first.logprob);
        out.put_u32_le(self.first.top.len() as u32);
        for &(id, logprob) in &self.first.top {
            out.put_u32_le(id);
            out.put_f32_le(logprob);
        }
        out.put_u32_le(self.prompt_ids.len() as u32);
        for &id in &self.prompt_ids {
            out.put_u32_le(id);
        }
        out.put_u32_le(self.output_counts.len() as u32);
        for &(id, count) in &self.output_counts {
            out.put_u32_le(id);
            out.put_u32_le(count);
        }
        out.freeze()
    }

    /// Reads an encoding back, refusing anything [`SamplingState::encode`] would not write for this model and position.
    pub fn decode(mut from: &[u8], layout: &Layout, state_pos: u32) -> Result<SamplingState, BadSampling> {
        let short = |field| BadSampling { field, fault: "is cut short" };
        let seed = from.try_get_u64_le().map_err(|_| short("seed"))?;
        let position = from.try_get_u32_le().map_err(|_| short("position"))?;
        let id = from.try_get_u32_le().map_err(|_| short("first token"))?;
        let logprob = from.try_get_f32_le().map_err(|_| short("first token's logprob"))?;
        let top = pairs("top", &mut from)?.map(|(id, bits)| (id, f32::from_bits(bits))).collect::<Vec<_>>();
        let prompt_ids = words("prompt ids", &mut from, 1)?.collect::<Vec<_>>();
        let output_counts = pairs("output counts", &mut from)?.collect();
        if from.has_remaining() {
            return Err(BadSampling { field: "encoding", fault: "has bytes left over" });
        }
        let first = FirstToken { id, logprob, top };
        let state = SamplingState { seed, position, first, prompt_ids, output_counts };
        state.check(layout, state_pos)?;
        Ok(state)
    }

    fn check(&self, layout: &Layout, state_pos: u32) -> Result<(), BadSampling> {
        let known = |id: u32| id < layout.vocabulary;
        let holds = [
            ("position", "is not the state's", self.position == state_pos),
            ("first token", "is not in the vocabulary", known(self.first.id)),
            ("first token's logprob", "is not a number", !self.first.logprob.is_nan()),
            ("top", "has too many entries", self.first.top.len() <= MOST_TOP),
            ("top", "is wrong", self.first.top.iter().all(|&(id, p)| known(id) && !p.is_nan())),
            ("prompt ids", "are more than the prompt has", self.prompt_ids.len() <= state_pos as usize),
            ("prompt ids", "do not ascend", self.prompt_ids.is_sorted_by(|a, b| a < b)),
            ("prompt ids", "are not in the vocabulary", self.prompt_ids.iter().all(|&id| known(id))),
            ("output counts", "do not ascend", self.output_counts.is_sorted_by(|a, b| a.0 < b.0)),
            ("output counts", "are not in the vocabulary", self.output_counts.iter().all(|c| known(c.0))),
            ("output counts", "have a zero", self.output_counts.iter().all(|c| c.1 > 0)),
        ];
        for (field, fault, holds) in holds {
            if !holds {
                return Err(BadSampling { field, fault });
            }
        }
        Ok(())
    }
}

/// A list of 4-byte words, its length checked against the bytes there are before anything is allocated.
fn words<'a>(
    field: &'static str,
    from: &mut &'a [u8],
    words_an_entry: usize,
) -> Result<impl ExactSizeIterator<Item = u32> + 'a, BadSampling> {
    let short = BadSampling { field, fault: "is cut short" };
    let entries = from.try_get_u32_le().map_err(|_| short)? as usize;
    let bytes = entries.checked_mul(4 * words_an_entry).ok_or(short)?;
    let (list, rest) = from.split_at_checked(bytes).ok_or(short)?;
    *from = rest;
    Ok(list.chunks_exact(4).map(|mut word| word.get_u32_le()))
}

fn pairs(field: &'static str, from: &mut &[u8]) -> Result<impl Iterator<Item = (u32, u32)>, BadSampling> {
    let words = words(field, from, 2)?.collect::<Vec<_>>();
    Ok((0..words.len() / 2).map(move |at| (words[2 * at], words[2 * at + 1])))
}
