//! State of one sequence to and from the device.

use std::ops::Range;

use statepool::{PageId, SlotId};

use super::calls::Outputs;
use super::{Input, Key, Output, PluginDevice, Spread};
use crate::{Error, Lease, SlotState};

/// The axis along which several devices share [`SlotState::recurrent`].
const RECURRENT_HEADS: usize = 1;
/// The same of [`SlotState::tails`]: a head's channels lie together, of each of query, key and value.
const TAIL_CHANNELS: usize = 3;

impl PluginDevice {
    /// In pieces as long as there are programs for; the last one is padded.
    pub(super) fn try_import_latents(
        &mut self,
        lease: &Lease,
        first: u32,
        tokens: u32,
        [latents, keys]: [&[f32]; 2],
    ) -> Result<(), Error> {
        let table = self.page_table(lease)?;
        let state = self.facts.state;
        let all_pools = self.facts.pools(first, tokens);
        let mut done = 0;
        while done < tokens {
            let ladder = &self.facts.ladder;
            let piece = (tokens - done).min(ladder.grid());
            let length = ladder.chunk_for(piece).unwrap_or(piece);
            let dims = self.latent_dims(length);
            let values = if (piece, length) == (tokens, tokens) {
                self.place.put(latents, &dims)?
            } else {
                let own = done as usize..(done + piece) as usize;
                let shape = [state.latent_layers, state.latent_width];
                self.place.put(&rows(latents, shape, own, length as usize), &dims)?
            };
            let start = self.place.put_scalar(first + done)?;
            let valid = self.place.put_scalar(piece)?;
            let mut inputs = vec![
                (Input::ChunkLatents, &values),
                (Input::Start, &start),
                (Input::Valid, &valid),
                (Input::PageTable, &table),
            ];
            let pools = self.facts.pools(first + done, piece);
            let own = (pools.start - all_pools.start) as usize..(pools.end - all_pools.start) as usize;
            let keys = self.piece_keys(keys, own, length)?;
            inputs.extend(keys.iter().map(|keys| (Input::ChunkKeys, keys)));
            self.call(Key::ImportLatents(length), &inputs)?;
            done += piece;
        }
        Ok(())
    }

    /// Of keys f32 `[latent_layers, pools, index_dim]` those of the pools in `own`, for a program of `length` tokens.
    fn piece_keys(&self, keys: &[f32], own: Range<usize>, length: u32) -> Result<Option<Spread>, Error> {
        let state = &self.facts.state;
        let Some(index) = state.index else { return Ok(None) };
        let pools = length as usize / index.pool + 1;
        let keys = rows(keys, [state.latent_layers, index.dim], own, pools);
        let dims = [state.latent_layers, pools, index.dim].map(|dim| dim as i64);
        Ok(Some(self.place.put(&keys, &dims)?))
    }

    pub(super) fn try_import_state(
        &mut self,
        slot: SlotId,
        tokens: u32,
        state: &SlotState,
    ) -> Result<(), Error> {
        let shape = self.facts.state;
        let put = |values: &[f32], dims: &[usize]| {
            let dims: Vec<i64> = dims.iter().map(|&dim| dim as i64).collect();
            self.place.put(values, &dims)
        };
        let dims = [shape.recurrent_layers, shape.heads, shape.key_dim, shape.value_dim];
        let recurrent = self.place.put_cut(&state.recurrent, &dims, RECURRENT_HEADS)?;
        let dims = [shape.recurrent_layers, 3, shape.tail_rows, shape.tail_width];
        let tails = self.place.put_cut(&state.tails, &dims, TAIL_CHANNELS)?;
        let slot = self.place.put_scalar(slot.0)?;
        let start = self.place.put_scalar(tokens)?;
        let mut inputs = vec![
            (Input::Slot, &slot),
            (Input::Start, &start),
            (Input::SlotRecurrent, &recurrent),
            (Input::SlotTails, &tails),
        ];
        let index_tail = match shape.index {
            Some(index) => Some(put(&state.index_tail, &[shape.latent_layers, index.pool, 2, index.dim])?),
            None => None,
        };
        inputs.extend(index_tail.iter().map(|tail| (Input::SlotIndexTail, tail)));
        let hidden = match shape.hidden {
            Some(width) => Some(put(&state.hidden, &[width])?),
            None => None,
        };
        inputs.extend(hidden.iter().map(|hidden| (Input::SlotHidden, hidden)));
        self.call(Key::ImportSlot, &inputs)?;
        Ok(())
    }

    pub(super) fn try_export_state(&mut self, slot: SlotId, tokens: u32) -> Result<SlotState, Error> {
        let slot = self.place.put_scalar(slot.0)?;
        let start = self.place.put_scalar(tokens)?;
        let outputs = self.call(Key::ExportSlot, &[(Input::Slot, &slot), (Input::Start, &start)])?;
        let shape = &self.facts.state;
        let read = |exists: bool, what| if exists { outputs.read(what) } else { Ok(Vec::new()) };
        Ok(SlotState {
            recurrent: outputs.read_cut(Output::SlotRecurrent, RECURRENT_HEADS)?,
            tails: outputs.read_cut(Output::SlotTails, TAIL_CHANNELS)?,
            index_tail: read(shape.index.is_some(), Output::SlotIndexTail)?,
            hidden: read(shape.hidden.is_some(), Output::SlotHidden)?,
        })
    }

    /// In pieces as long as there is a program for; the last one is padded.
    pub(super) fn try_export_latents(
        &mut self,
        lease: &Lease,
        first: u32,
        tokens: u32,
    ) -> Result<(Vec<f32>, Vec<f32>), Error> {
        let table = self.page_table(lease)?;
        let length = self.facts.ladder.grid();
        let mut pieces = Vec::new();
        let mut done = 0;
        while done < tokens {
            let piece = (tokens - done).min(length);
            let start = self.place.put_scalar(first + done)?;
            let valid = self.place.put_scalar(piece)?;
            let inputs = [(Input::Start, &start), (Input::Valid, &valid), (Input::PageTable, &table)];
            let outputs = self.call(Key::ExportLatents(length), &inputs)?;
            pieces.push(self.exported(&outputs, first + done, piece)?);
            done += piece;
        }
        if let [one] = pieces.as_mut_slice() {
            return Ok(std::mem::take(one));
        }
        let (latents, keys): (Vec<_>, Vec<_>) = pieces.into_iter().unzip();
        let layers = self.facts.state.latent_layers;
        Ok((joined(&latents, layers), joined(&keys, layers)))
    }

    fn exported(&self, outputs: &Outputs, first: u32, tokens: u32) -> Result<(Vec<f32>, Vec<f32>), Error> {
        let state = &self.facts.state;
        let (layers, count) = (state.latent_layers, tokens as usize);
        let latents = outputs.read(Output::ChunkLatents)?;
        let latents = rows(&latents, [layers, state.latent_width], 0..count, count);
        let Some(index) = state.index else { return Ok((latents, Vec::new())) };
        let pools = self.facts.pools(first, tokens).len();
        let keys = rows(&outputs.read(Output::ChunkKeys)?, [layers, index.dim], 0..pools, pools);
        Ok((latents, keys))
    }

    pub(super) fn try_copy_page(&mut self, from: PageId, to: PageId) -> Result<(), Error> {
        let (from, to) = (self.place.put_scalar(from.0)?, self.place.put_scalar(to.0)?);
        self.call(Key::CopyPage, &[(Input::FromPage, &from), (Input::ToPage, &to)])?;
        Ok(())
    }

    pub(super) fn try_resume(
        &mut self,
        lease: &Lease,
        tokens: u32,
        next: u32,
        state: &SlotState,
    ) -> Result<(), Error> {
        self.try_import_state(lease.slot(), tokens, state)?;
        if self.facts.state.hidden.is_none() {
            return Ok(());
        }
        let next = self.place.put(&[next as i32], &[1])?;
        let start = self.place.put_scalar(tokens.saturating_sub(1))?;
        let slot = self.place.put_scalar(lease.slot().0)?;
        let table = self.page_table(lease)?;
        let inputs = [
            (Input::Tokens, &next),
            (Input::Start, &start),
            (Input::Slot, &slot),
            (Input::PageTable, &table),
        ];
        self.call(Key::DraftLine, &inputs)?;
        Ok(())
    }

    pub(super) fn page_table(&self, lease: &Lease) -> Result<Spread, Error> {
        let pages = self.facts.ladder.pages_per_sequence();
        let mut row = vec![0; pages as usize];
        lease.write_row(&mut row);
        Ok(self.place.put(&row, &[i64::from(pages)])?)
    }

    fn latent_dims(&self, tokens: u32) -> [i64; 3] {
        let state = &self.facts.state;
        [state.latent_layers as i64, i64::from(tokens), state.latent_width as i64]
    }
}

/// Values f32 `[layers, rows, width]` with the rows of all pieces, in order.
fn joined(pieces: &[Vec<f32>], layers: usize) -> Vec<f32> {
    let mut all = Vec::with_capacity(pieces.iter().map(Vec::len).sum());
    for layer in 0..layers {
        for piece in pieces {
            let own = piece.len() / layers.max(1);
            all.extend_from_slice(&piece[layer * own..(layer + 1) * own]);
        }
    }
    all
}

/// Of values f32 `[layers, rows, width]` the rows in `own`, as `[layers, length, width]` with zeros at the end.
pub(super) fn rows(
    values: &[f32],
    [layers, width]: [usize; 2],
    own: Range<usize>,
    length: usize,
) -> Vec<f32> {
    let per_layer = values.len() / layers.max(1);
    let mut cut = Vec::with_capacity(layers * length * width);
    for layer in 0..layers {
        let begin = layer * per_layer;
        cut.extend_from_slice(&values[begin + own.start * width..begin + own.end * width]);
        cut.resize((layer + 1) * length * width, 0.0);
    }
    cut
}
