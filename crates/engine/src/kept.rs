//! Recurrent checkpoints as the host keeps them.

use prefix::Tokens;
use statepool::{Bytes, Checkpoint};

use crate::SlotState;

#[cfg(test)]
mod tests;

/// How the recurrent state of a checkpoint is held on the host; the rest of it is always f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckpointFormat {
    /// As the device has it: a prompt that goes on from it is computed from the same numbers.
    #[default]
    F32,
    /// 8 bits a value, and a scale of f32 for each key channel of each head: a quarter of the bytes, and an answer that
    /// may differ.
    Int8,
}

/// A sequence's fixed-size state after so many tokens.
#[derive(Clone, Debug)]
pub struct Kept {
    tokens: u32,
    recurrent: Recurrent,
    /// Without its recurrent part.
    rest: SlotState,
}

#[derive(Clone, Debug)]
enum Recurrent {
    F32(Vec<f32>),
    /// Rows of `width` values, a scale each.
    Int8 {
        values: Vec<i8>,
        scales: Vec<f32>,
    },
}

impl Kept {
    /// The state after `tokens` tokens. `value_dim`: values of a key channel.
    pub(crate) fn new(mut state: SlotState, tokens: u32, format: CheckpointFormat, value_dim: usize) -> Self {
        let recurrent = std::mem::take(&mut state.recurrent);
        let recurrent = match format {
            CheckpointFormat::F32 => Recurrent::F32(recurrent),
            CheckpointFormat::Int8 => quantized(&recurrent, value_dim.max(1)),
        };
        Self { tokens, recurrent, rest: state }
    }

    /// The state, to be written to a slot.
    pub(crate) fn state(&self) -> SlotState {
        let recurrent = match &self.recurrent {
            Recurrent::F32(values) => values.clone(),
            Recurrent::Int8 { values, scales } => {
                let width = values.len() / scales.len().max(1);
                let rows = values.chunks(width.max(1)).zip(scales);
                rows.flat_map(|(row, scale)| row.iter().map(move |value| f32::from(*value) * scale)).collect()
            }
        };
        SlotState { recurrent, ..self.rest.clone() }
    }
}

impl Checkpoint for Kept {
    fn tokens(&self) -> Tokens {
        Tokens(self.tokens)
    }

    fn bytes(&self) -> Bytes {
        let recurrent = match &self.recurrent {
            Recurrent::F32(values) => size_of_val(values.as_slice()),
            Recurrent::Int8 { values, scales } => values.len() + size_of_val(scales.as_slice()),
        };
        let rest = [&self.rest.tails, &self.rest.index_tail, &self.rest.hidden];
        let rest: usize = rest.into_iter().map(|values| size_of_val(values.as_slice())).sum();
        Bytes((recurrent + rest) as u64)
    }
}

/// Symmetric, the largest of a row's values at 127.
fn quantized(values: &[f32], width: usize) -> Recurrent {
    let mut scales = Vec::with_capacity(values.len().div_ceil(width));
    let mut bytes = Vec::with_capacity(values.len());
    for row in values.chunks(width) {
        let largest = row.iter().fold(0f32, |most, value| most.max(value.abs()));
        let scale = largest / 127.0;
        let back = if scale > 0.0 { scale.recip() } else { 0.0 };
        bytes.extend(row.iter().map(|value| (value * back).round() as i8));
        scales.push(scale);
    }
    Recurrent::Int8 { values: bytes, scales }
}
