//! From room to the first chunk: what a lease begins with, and what its reader is told of that.

use scheduler::{ChunkStep, SequenceId};
use statepool::{Hit, PoolError};

use super::{Prompt, Prompts};
use crate::{Device, DeviceFault, Facts, Kept, PrefillEvent, SlotRows, output_counts};

impl Prompts {
    /// Readies the lease of a prompt that was admitted. How many of its tokens are cached.
    pub(super) fn begin(
        &mut self,
        sequence: SequenceId,
        hit: Option<Hit<Kept>>,
        device: &mut impl Device,
    ) -> Result<u64, DeviceFault> {
        let ready = self.ready(sequence, hit, device);
        match self.fail_if(sequence, ready)? {
            Ok(cached) => Ok(cached.into()),
            Err(error) => {
                self.end(sequence, Err(error.into()));
                Ok(0)
            }
        }
    }

    fn ready(
        &mut self,
        sequence: SequenceId,
        hit: Option<Hit<Kept>>,
        device: &mut impl Device,
    ) -> Result<Result<u32, PoolError>, DeviceFault> {
        let (Some(prompt), Some(lease)) = (self.prompts.get_mut(&sequence), self.plan.lease(sequence)) else {
            return Ok(Ok(0));
        };
        prompt.began.get_or_insert_with(|| self.clock.now());
        let resume_at = hit.as_ref().map_or(0, |hit| hit.resume_at.0);
        tracing::debug!(
            request_id = prompt.job.request_id,
            tokens = prompt.job.prompt.len(),
            resume_at,
            slot = lease.slot().0,
            "prompt begins"
        );
        if prompt.told == 0 {
            // The queue is empty, and a reader that is gone is seen by the next sweep.
            let _gone = prompt.outlet.send(PrefillEvent::Started);
        }
        if self.facts.poison {
            device.poison(lease.own_pages(), lease.slot())?;
        }
        if let Some(Hit { mut checkpoint, copy, .. }) = hit {
            if let Some(copy) = copy {
                device.copy_page(copy.from(), copy.to())?;
            }
            let state = match checkpoint.load() {
                Ok(kept) => kept.state(),
                Err(error) => return Ok(Err(error)),
            };
            let next = prompt.job.prompt.get(resume_at as usize).copied().unwrap_or_default();
            device.resume(lease, resume_at, next, &state)?;
        }
        (prompt.cached, prompt.kept) = (prompt.cached.max(resume_at), prompt.kept.max(resume_at));
        if prompt.job.sampling.needs_slot_rows() {
            let (seen, output) = prompt.job.parts();
            let counts = output_counts(output);
            let rows = SlotRows { seen, counts: &counts, bias: &prompt.job.sampling.logit_bias };
            device.set_sampling(lease.slot(), &rows)?;
        }
        Ok(Ok(resume_at))
    }

    /// Tells the reader of the next piece of what is cached, from position `told` on.
    pub(super) fn tell_cached(
        &mut self,
        step: &ChunkStep,
        told: u32,
        device: &mut impl Device,
    ) -> Result<(), DeviceFault> {
        let (Some(prompt), Some(lease)) =
            (self.prompts.get_mut(&step.sequence), self.plan.lease(step.sequence))
        else {
            return Ok(());
        };
        let valid = (step.start - told).min(self.facts.ladder.grid());
        let (latents, keys) = device.export_latents(lease, told, valid)?;
        prompt.tell(&self.facts, &ChunkStep { start: told, valid, length: valid, ..*step }, latents, keys);
        self.plan.pass(step.sequence);
        Ok(())
    }
}

impl Prompt {
    /// Tells the reader of a chunk, unless it was told before.
    pub(super) fn tell(&mut self, facts: &Facts, step: &ChunkStep, latents: Vec<f32>, keys: Vec<f32>) {
        if step.end() <= self.told {
            return;
        }
        self.told = step.end();
        let pools = facts.pools(step.start, step.valid);
        // `next_step` saw room, and a reader that is gone is seen by the next sweep.
        let _gone = self.outlet.send(PrefillEvent::Chunk {
            first_position: step.start,
            tokens: step.valid,
            latents: latents.into(),
            keys: keys.into(),
            first_pool: pools.start,
            pools: pools.end - pools.start,
            done: step.end(),
            total: step.total,
        });
    }
}
