use std::collections::{HashMap, HashSet};
use std::time::Instant;

use programs::sampling::SampleRow;
use scheduler::{Ask, ChunkStep, Grid, Prefill, Priority, SequenceId};
use statepool::Pool;

use crate::outlet::Outlet;
use crate::{
    Chunk, Device, DeviceFault, Draws, Error, Facts, Limits, PrefillEvent, PrefillJob, PrefillTimings,
    SampledToken, SlotRows,
};

/// The prompts that wait or are under way, and their readers.
#[derive(Debug)]
pub(super) struct Prompts {
    plan: Prefill,
    prompts: HashMap<SequenceId, Prompt>,
    facts: Facts,
    limits: Limits,
}

#[derive(Debug)]
struct Prompt {
    job: PrefillJob,
    row: SampleRow,
    outlet: Outlet<PrefillEvent>,
    asked: Instant,
    began: Instant,
}

impl Prompt {
    /// Whether the reader keeps up, so that a chunk can be queued for it.
    fn keeps_up(&self) -> bool {
        self.outlet.room() > 0
    }
}

impl Prompts {
    pub(super) fn new(facts: &Facts, limits: Limits) -> Self {
        let grid = Grid::new(facts.ladder.chunks.clone());
        Self { plan: Prefill::new(grid), prompts: HashMap::new(), facts: facts.clone(), limits }
    }

    pub(super) fn queue(&mut self, sequence: SequenceId, job: PrefillJob, outlet: Outlet<PrefillEvent>) {
        let waiting = self.plan.waiting();
        if waiting >= self.limits.waiting_prompts {
            outlet.end(Err(Error::QueueFull { waiting }));
            return;
        }
        let tokens = u32::try_from(job.prompt.len()).unwrap_or(u32::MAX);
        let ask = Ask { tokens, priority: Priority(job.priority), deadline: job.deadline };
        self.plan.queue(sequence, ask);
        let row = SampleRow::pack(&job.sampling);
        let asked = Instant::now();
        self.prompts.insert(sequence, Prompt { job, row, outlet, asked, began: asked });
    }

    /// Ends what nobody reads any more and what comes too late.
    pub(super) fn sweep(&mut self, now: Instant) {
        let abandoned = self.prompts.iter().filter(|(_, prompt)| prompt.outlet.is_abandoned());
        let abandoned: Vec<SequenceId> = abandoned.map(|(sequence, _)| *sequence).collect();
        for sequence in abandoned {
            self.plan.remove(sequence);
            self.prompts.remove(&sequence);
        }
        let expired: Vec<SequenceId> = self.plan.expired(now).collect();
        for sequence in expired {
            self.end(sequence, Err(Error::DeadlinePassed { phase: "prefill" }));
        }
    }

    /// Gives room to prompts in turn, as long as few enough are under way.
    pub(super) fn admit(&mut self, pool: &Pool, device: &mut impl Device) -> Result<(), DeviceFault> {
        while self.plan.waiting() > 0 && self.in_turn() < self.limits.prompts_in_turn {
            match self.plan.admit(pool) {
                Some(Ok(sequence)) => self.begin(sequence, device)?,
                Some(Err((sequence, no_room))) if !no_room.may_pass() => {
                    self.end(sequence, Err(no_room.into()));
                }
                Some(Err(_)) | None => break,
            }
        }
        Ok(())
    }

    fn in_turn(&self) -> usize {
        let under_way = |sequence: &SequenceId| self.plan.lease(*sequence).is_some();
        self.prompts.iter().filter(|(sequence, prompt)| under_way(sequence) && prompt.keeps_up()).count()
    }

    fn begin(&mut self, sequence: SequenceId, device: &mut impl Device) -> Result<(), DeviceFault> {
        let Some(prompt) = self.prompts.get_mut(&sequence) else { return Ok(()) };
        let Some(lease) = self.plan.lease(sequence) else { return Ok(()) };
        prompt.began = Instant::now();
        tracing::debug!(
            request_id = prompt.job.request_id,
            tokens = prompt.job.prompt.len(),
            slot = lease.slot().0,
            "prompt begins"
        );
        // The queue is empty, and a reader that is gone is seen by the next sweep.
        let _gone = prompt.outlet.send(PrefillEvent::Started);
        if self.facts.poison
            && let Err(fault) = device.poison(lease)
        {
            return self.fail_if(sequence, Err(fault));
        }
        if !prompt.job.sampling.needs_slot_rows() {
            return Ok(());
        }
        let rows = SlotRows { seen: &prompt.job.prompt, counts: &[], bias: &prompt.job.sampling.logit_bias };
        let done = device.set_sampling(lease.slot(), &rows);
        self.fail_if(sequence, done)
    }

    /// The next chunk, of a prompt whose reader keeps up.
    pub(super) fn next_step(&self) -> Option<ChunkStep> {
        self.plan.next_step(|sequence| self.prompts.get(&sequence).is_some_and(Prompt::keeps_up))
    }

    /// Computes a chunk and tells its reader.
    pub(super) fn run(&mut self, step: &ChunkStep, device: &mut impl Device) -> Result<(), DeviceFault> {
        let ran = self.compute(step, device);
        self.fail_if(step.sequence, ran)
    }

    fn compute(&mut self, step: &ChunkStep, device: &mut impl Device) -> Result<(), DeviceFault> {
        let sequence = step.sequence;
        let Some(prompt) = self.prompts.get(&sequence) else { return Ok(()) };
        let Some(lease) = self.plan.lease(sequence) else { return Ok(()) };
        let tokens = prompt.job.prompt.get(step.start as usize..step.end() as usize).unwrap_or_default();
        let done = device.prefill(&Chunk {
            tokens,
            start: step.start,
            length: step.length,
            ends_prompt: step.is_last(),
            next: prompt.job.prompt.get(step.end() as usize).copied().unwrap_or_default(),
            lease,
            sampling: &prompt.row,
        })?;
        let pools = self.facts.pools(step.start, step.valid);
        // `next_step` saw room, and a reader that is gone is seen by the next sweep.
        let _gone = prompt.outlet.send(PrefillEvent::Chunk {
            first_position: step.start,
            tokens: step.valid,
            latents: done.latents.into(),
            keys: done.keys.into(),
            first_pool: pools.start,
            pools: pools.end - pools.start,
            done: step.end(),
            total: step.total,
        });
        let last = match done.draws {
            Some(draws) if step.is_last() => {
                let first = first_token(&draws, prompt.job.sampling.logprobs);
                match first {
                    Some(first) => {
                        let state = device.export_state(lease.slot(), step.total)?;
                        let computed = prompt.began.elapsed();
                        let queued = prompt.began.duration_since(prompt.asked);
                        let timings = PrefillTimings { queued, computed };
                        Some(Ok(PrefillEvent::Done { first, state, timings }))
                    }
                    None => Some(Err(Error::NotFinite { position: step.total })),
                }
            }
            Some(_) | None => None,
        };
        self.plan.complete(step);
        if let Some(last) = last {
            self.end(sequence, last);
        }
        Ok(())
    }

    /// Ends every prompt under way: its state is gone. Those that wait have none yet.
    pub(super) fn lose_state(&mut self) {
        let under_way: HashSet<SequenceId> =
            self.prompts.keys().copied().filter(|sequence| self.plan.lease(*sequence).is_some()).collect();
        for sequence in under_way {
            self.end(sequence, Err(Error::StateLost));
        }
    }

    fn fail_if(&mut self, sequence: SequenceId, done: Result<(), DeviceFault>) -> Result<(), DeviceFault> {
        if let Err(fault) = &done {
            self.end(sequence, Err(Error::Device { message: fault.message.clone() }));
        }
        done
    }

    /// Gives the room back, then tells the reader, who may count on it.
    fn end(&mut self, sequence: SequenceId, last: Result<PrefillEvent, Error>) {
        self.plan.remove(sequence);
        let Some(prompt) = self.prompts.remove(&sequence) else { return };
        if let Err(error) = &last {
            tracing::info!(request_id = prompt.job.request_id, %error, "prompt ended early");
        }
        prompt.outlet.end(last);
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.plan.next_deadline()
    }

    pub(super) fn waiting(&self) -> usize {
        self.plan.waiting()
    }

    pub(super) fn running(&self) -> usize {
        self.plan.running()
    }

    pub(super) fn queued_tokens(&self) -> u64 {
        self.plan.queued_tokens()
    }
}

/// None where the logits were not finite.
fn first_token(draws: &Draws, wanted: Option<u32>) -> Option<SampledToken> {
    let id = draws.tokens.first().and_then(|id| u32::try_from(*id).ok())?;
    let (logprob, top) = draws.alternatives(0, wanted);
    Some(SampledToken { id, logprob, top })
}
