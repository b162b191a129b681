use programs::sampling::{REALS, WORDS};
use statepool::{PageId, SlotId};

use super::calls::Outputs;
use super::moves::rows;
use super::{Input, Kept, Key, Output, PluginDevice};
use crate::{Chunk, ChunkDone, Device, DeviceFault, Draws, Error, Facts, Lease, Rows, SlotRows, SlotState};

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
        keys: &[f32],
    ) -> Result<(), DeviceFault> {
        self.try_import_latents(lease, first, tokens, [latents, keys]).map_err(|error| self.fault(&error))
    }

    fn import_state(&mut self, slot: SlotId, tokens: u32, state: &SlotState) -> Result<(), DeviceFault> {
        self.try_import_state(slot, tokens, state).map_err(|error| self.fault(&error))
    }

    fn export_state(&mut self, slot: SlotId, tokens: u32) -> Result<SlotState, DeviceFault> {
        self.try_export_state(slot, tokens).map_err(|error| self.fault(&error))
    }

    fn export_latents(
        &mut self,
        lease: &Lease,
        first: u32,
        tokens: u32,
    ) -> Result<(Vec<f32>, Vec<f32>), DeviceFault> {
        self.try_export_latents(lease, first, tokens).map_err(|error| self.fault(&error))
    }

    fn copy_page(&mut self, from: PageId, to: PageId) -> Result<(), DeviceFault> {
        self.try_copy_page(from, to).map_err(|error| self.fault(&error))
    }

    fn resume(
        &mut self,
        lease: &Lease,
        tokens: u32,
        next: u32,
        state: &SlotState,
    ) -> Result<(), DeviceFault> {
        self.try_resume(lease, tokens, next, state).map_err(|error| self.fault(&error))
    }

    fn poison(&mut self, pages: &[PageId], slot: SlotId) -> Result<(), DeviceFault> {
        self.arrays.poison(&self.place, pages, slot).map_err(|error| self.fault(&error))
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
        let next = place.put_scalar(chunk.next)?;
        let table = self.page_table(chunk.lease)?;
        let words = place.put(&chunk.sampling.words, &[1, WORDS as i64])?;
        let reals = place.put(&chunk.sampling.reals, &[1, REALS as i64])?;
        let inputs = [
            (Input::Tokens, &tokens),
            (Input::Valid, &count),
            (Input::Start, &start),
            (Input::Slot, &slot),
            (Input::EndsPrompt, &ends),
            (Input::NextToken, &next),
            (Input::PageTable, &table),
            (Input::SampleWords, &words),
            (Input::SampleReals, &reals),
        ];
        let outputs = self.call(Key::Prefill(chunk.length), &inputs)?;
        let mut latents = outputs.read(Output::ChunkLatents)?;
        if valid < length {
            let state = &self.facts.state;
            latents = rows(&latents, [state.latent_layers, state.latent_width], 0..valid, valid);
        }
        let keys = self.chunk_keys(chunk, &outputs)?;
        let mut done = ChunkDone { latents, keys, draws: None };
        if chunk.ends_prompt {
            done.draws = Some(Draws {
                counts: vec![1],
                tokens: outputs.read(Output::Sampled)?,
                logprobs: outputs.read(Output::ChosenLogprob)?,
                top_ids: outputs.read(Output::TopIds)?,
                top_logprobs: outputs.read(Output::TopLogprobs)?,
            });
        }
        Ok(done)
    }

    /// Keys of the pools that the chunk completes.
    fn chunk_keys(&self, chunk: &Chunk<'_>, outputs: &Outputs) -> Result<Vec<f32>, Error> {
        let Some(index) = self.facts.state.index else { return Ok(Vec::new()) };
        let tokens = u32::try_from(chunk.tokens.len()).unwrap_or(chunk.length);
        let pools = self.facts.pools(chunk.start, tokens).len();
        let shape = [self.facts.state.latent_layers, index.dim];
        let mut keys = rows(&outputs.read(Output::ChunkKeys)?, shape, 0..pools, pools);
        let completed = ((chunk.start + tokens) as usize).is_multiple_of(index.pool);
        if chunk.ends_prompt && completed && self.facts.state.hidden.is_some() {
            // The draft layer's last pool lacks its last token.
            let own = keys.len().saturating_sub(index.dim);
            keys[own..].fill(0.0);
        }
        Ok(keys)
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
        let drafts = self.facts.ladder.drafts > 0;
        let window = i64::from(self.facts.ladder.window());
        let last = if drafts {
            let accepted = self.place.put(&rows.accepted, &[batch])?;
            Some([accepted, self.place.put(&rows.recent, &[batch, window])?])
        } else {
            None
        };
        if let Some([accepted, recent]) = &last {
            inputs.extend([(Input::Accepted, accepted), (Input::Recent, recent)]);
        }
        inputs.extend(kept.inputs.iter().map(|(input, buffer)| (*input, buffer)));
        let outputs = self.call(Key::Decode(rows.batch), &inputs)?;
        self.kept = Some(kept);
        *draws = Draws { tokens: outputs.read(Output::Sampled)?, ..Draws::default() };
        draws.counts = if drafts { outputs.read(Output::Accepted)? } else { vec![1; rows.batch as usize] };
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
        let seen = place.put_booleans(&seen, &dims)?;
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
}
