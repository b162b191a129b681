use pjrt::DType;
use programs::sampling::{REALS, WORDS};
use statepool::{Lease, SlotId};

use super::{Buffer, Input, Kept, Key, Output, PluginDevice};
use crate::{Chunk, ChunkDone, Device, DeviceFault, Draws, Error, Facts, Rows, SlotRows, SlotState};

impl Device for PluginDevice {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn prefill(&mut self, chunk: &Chunk<'_>) -> Result<ChunkDone, DeviceFault> {
        self.try_prefill(chunk).map_err(|error| self.fault(&error))
    }

    fn decode(&mut self, rows: &Rows, draws: &mut Draws) -> Result<(), DeviceFault> {
        self.try_decode(rows, draws).map_err(|error| self.fault(&error))
    }

    fn set_sampling(&mut self, slot: SlotId, rows: &SlotRows<'_>) -> Result<(), DeviceFault> {
        self.try_set_sampling(slot, rows).map_err(|error| self.fault(&error))
    }

    fn import_latents(
        &mut self,
        lease: &Lease,
        first: u32,
        tokens: u32,
        latents: &[f32],
    ) -> Result<(), DeviceFault> {
        self.try_import_latents(lease, first, tokens, latents).map_err(|error| self.fault(&error))
    }

    fn import_state(&mut self, slot: SlotId, state: &SlotState) -> Result<(), DeviceFault> {
        self.try_import_state(slot, state).map_err(|error| self.fault(&error))
    }

    fn export_state(&mut self, slot: SlotId) -> Result<SlotState, DeviceFault> {
        self.try_export_state(slot).map_err(|error| self.fault(&error))
    }
}

impl PluginDevice {
    fn try_prefill(&mut self, chunk: &Chunk<'_>) -> Result<ChunkDone, Error> {
        let valid = chunk.tokens.len();
        let length = chunk.length as usize;
        let mut tokens: Vec<i32> = chunk.tokens.iter().map(|token| *token as i32).collect();
        tokens.resize(length, 0);
        let place = self.place.clone();
        let tokens = place.put(&tokens, &[length as i64])?;
        let count = place.put_scalar(u32::try_from(valid).unwrap_or(chunk.length))?;
        let start = place.put_scalar(chunk.start)?;
        let slot = place.put_scalar(chunk.lease.slot().0)?;
        let ends = place.put_scalar(chunk.ends_prompt.into())?;
        let table = self.page_table(chunk.lease)?;
        let words = place.put(&chunk.sampling.words, &[1, WORDS as i64])?;
        let reals = place.put(&chunk.sampling.reals, &[1, REALS as i64])?;
        let inputs = [
            (Input::Tokens, &tokens),
            (Input::Valid, &count),
            (Input::Start, &start),
            (Input::Slot, &slot),
            (Input::EndsPrompt, &ends),
            (Input::PageTable, &table),
            (Input::SampleWords, &words),
            (Input::SampleReals, &reals),
        ];
        let outputs = self.call(Key::Prefill(chunk.length), &inputs)?;
        let mut latents = outputs.read(Output::ChunkLatents)?;
        if valid < length {
            latents = self.window(&latents, length, 0, valid, valid);
        }
        let mut done = ChunkDone { latents, draws: None };
        if chunk.ends_prompt {
            done.draws = Some(Draws {
                tokens: outputs.read(Output::Sampled)?,
                logprobs: outputs.read(Output::ChosenLogprob)?,
                top_ids: outputs.read(Output::TopIds)?,
                top_logprobs: outputs.read(Output::TopLogprobs)?,
            });
        }
        Ok(done)
    }

    fn try_decode(&mut self, rows: &Rows, draws: &mut Draws) -> Result<(), Error> {
        let kept = match self.kept.take() {
            Some(kept) if kept.composition == rows.composition => kept,
            Some(_) | None => self.keep(rows)?,
        };
        let batch = i64::from(rows.batch);
        let tokens = self.place.put(&rows.tokens, &[batch])?;
        let positions = self.place.put(&rows.positions, &[batch])?;
        let mut inputs = vec![(Input::Tokens, &tokens), (Input::Positions, &positions)];
        inputs.extend(kept.inputs.iter().map(|(input, buffer)| (*input, buffer)));
        let outputs = self.call(Key::Decode(rows.batch), &inputs)?;
        self.kept = Some(kept);
        *draws = Draws { tokens: outputs.read(Output::Sampled)?, ..Draws::default() };
        if rows.logprobs {
            draws.logprobs = outputs.read(Output::ChosenLogprob)?;
            draws.top_ids = outputs.read(Output::TopIds)?;
            draws.top_logprobs = outputs.read(Output::TopLogprobs)?;
        }
        Ok(())
    }

    fn keep(&self, rows: &Rows) -> Result<Kept, Error> {
        let (place, batch) = (&self.place, i64::from(rows.batch));
        let pages = i64::from(self.facts.ladder.pages_per_sequence());
        let inputs = [
            (Input::Slots, place.put(&rows.slots, &[batch])?),
            (Input::PageTable, place.put(&rows.page_table, &[batch, pages])?),
            (Input::SampleWords, place.put(&rows.words, &[batch, WORDS as i64])?),
            (Input::SampleReals, place.put(&rows.reals, &[batch, REALS as i64])?),
        ];
        Ok(Kept { composition: rows.composition, inputs })
    }

    fn try_set_sampling(&mut self, slot: SlotId, rows: &SlotRows<'_>) -> Result<(), Error> {
        let vocabulary = self.facts.state.vocabulary;
        let (mut seen, mut counts, mut bias) =
            (vec![0u8; vocabulary], vec![0i32; vocabulary], vec![0f32; vocabulary]);
        // Handles have refused ids beyond the vocabulary.
        for token in rows.seen {
            seen[*token as usize] = 1;
        }
        for (token, count) in rows.counts {
            counts[*token as usize] += i32::try_from(*count).unwrap_or(i32::MAX);
        }
        for (token, value) in rows.bias {
            bias[*token as usize] = *value;
        }
        let dims = [vocabulary as i64];
        let place = &self.place;
        let slot = place.put_scalar(slot.0)?;
        let seen = place.client.buffer_from_host(&seen, DType::Pred, &dims, place.device()?)?;
        let counts = place.put(&counts, &dims)?;
        let bias = place.put(&bias, &dims)?;
        let inputs = [
            (Input::Slot, &slot),
            (Input::SlotSeen, &seen),
            (Input::SlotCounts, &counts),
            (Input::SlotBias, &bias),
        ];
        self.call(Key::SetSampling, &inputs)?;
        Ok(())
    }

    /// In pieces as long as there are programs for; the last one is padded.
    fn try_import_latents(
        &mut self,
        lease: &Lease,
        first: u32,
        tokens: u32,
        latents: &[f32],
    ) -> Result<(), Error> {
        let table = self.page_table(lease)?;
        let mut done = 0;
        while done < tokens {
            let ladder = &self.facts.ladder;
            let piece = (tokens - done).min(ladder.grid());
            let length = ladder.chunk_for(piece).unwrap_or(piece);
            let values = if (piece, length) == (tokens, tokens) {
                self.place.put(latents, &self.chunk_dims(length))?
            } else {
                let (from, rows) = (done as usize, piece as usize);
                let values = self.window(latents, tokens as usize, from, rows, length as usize);
                self.place.put(&values, &self.chunk_dims(length))?
            };
            let start = self.place.put_scalar(first + done)?;
            let valid = self.place.put_scalar(piece)?;
            let inputs = [
                (Input::ChunkLatents, &values),
                (Input::Start, &start),
                (Input::Valid, &valid),
                (Input::PageTable, &table),
            ];
            self.call(Key::ImportLatents(length), &inputs)?;
            done += piece;
        }
        Ok(())
    }

    fn try_import_state(&mut self, slot: SlotId, state: &SlotState) -> Result<(), Error> {
        let shape = self.facts.state;
        let dims = [shape.recurrent_layers, shape.heads, shape.key_dim, shape.value_dim];
        let recurrent = self.place.put(&state.recurrent, &dims.map(|dim| dim as i64))?;
        let dims = [shape.recurrent_layers, 3, shape.tail_rows, shape.tail_width];
        let tails = self.place.put(&state.tails, &dims.map(|dim| dim as i64))?;
        let slot = self.place.put_scalar(slot.0)?;
        let inputs = [(Input::Slot, &slot), (Input::SlotRecurrent, &recurrent), (Input::SlotTails, &tails)];
        self.call(Key::ImportSlot, &inputs)?;
        Ok(())
    }

    fn try_export_state(&mut self, slot: SlotId) -> Result<SlotState, Error> {
        let slot = self.place.put_scalar(slot.0)?;
        let outputs = self.call(Key::ExportSlot, &[(Input::Slot, &slot)])?;
        Ok(SlotState {
            recurrent: outputs.read(Output::SlotRecurrent)?,
            tails: outputs.read(Output::SlotTails)?,
        })
    }

    fn page_table(&self, lease: &Lease) -> Result<Buffer, Error> {
        let pages = self.facts.ladder.pages_per_sequence();
        let mut row = vec![0; pages as usize];
        lease.write_row(&mut row);
        Ok(self.place.put(&row, &[i64::from(pages)])?)
    }

    fn chunk_dims(&self, tokens: u32) -> [i64; 3] {
        let state = &self.facts.state;
        [state.latent_layers as i64, i64::from(tokens), state.latent_width as i64]
    }

    /// Of latents f32 `[layers, tokens, width]` the tokens from `from` on, `count` of them, as `[layers, length, width]` with
    /// zeros at the end.
    fn window(&self, latents: &[f32], tokens: usize, from: usize, count: usize, length: usize) -> Vec<f32> {
        let width = self.facts.state.latent_width;
        let mut cut = Vec::with_capacity(self.facts.state.latent_layers * length * width);
        for layer in latents.chunks_exact((tokens * width).max(1)) {
            cut.extend_from_slice(&layer[from * width..(from + count) * width]);
            cut.resize(cut.len() + (length - count) * width, 0.0);
        }
        cut
    }
}
