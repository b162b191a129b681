use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use prefix::{Chain, Tokens};
use programs::sampling::SampleRow;
use scheduler::{Ask, ChunkStep, Grid, Prefill, Priority, SequenceId, Start};
use statepool::{Admitted, Hit};

use crate::clock::Clock;
use crate::command::StartPrefill;
use crate::outlet::Outlet;
use crate::{
    CheckpointFormat, Chunk, ChunkDone, Device, DeviceFault, Draws, Error, Facts, Kept, Lease, Limits, Pool,
    PrefillEvent, PrefillJob, PrefillTimings, SampledToken,
};

mod begin;
mod keep;

/// The prompts that wait or are under way, and their readers.
#[derive(Debug)]
pub(super) struct Prompts {
    plan: Prefill<Lease>,
    prompts: BTreeMap<SequenceId, Prompt>,
    pool: Pool,
    facts: Facts,
    limits: Limits,
    /// How checkpoints are held.
    keep: CheckpointFormat,
    clock: Clock,
}

#[derive(Debug)]
struct Prompt {
    job: PrefillJob,
    /// Its hashes, where prompts are kept.
    chain: Option<Chain>,
    row: SampleRow,
    outlet: Outlet<PrefillEvent>,
    asked: Instant,
    began: Option<Instant>,
    /// Tokens that were cached when it began.
    cached: u32,
    /// Positions before this one were told of.
    told: u32,
    /// Where its state is to be kept.
    marks: BTreeSet<u32>,
    /// After so many tokens its state was kept last.
    kept: u32,
}

impl Prompt {
    /// Whether the reader keeps up, so that a chunk can be queued for it.
    fn keeps_up(&self) -> bool {
        self.outlet.room() > 0
    }
}

/// What a step was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ran {
    /// Tokens were computed.
    Computed,
    /// What was cached was read back, to be told of.
    Told,
}

impl Prompts {
    pub(super) fn new(
        facts: &Facts,
        limits: Limits,
        keep: CheckpointFormat,
        pool: Pool,
        clock: Clock,
    ) -> Self {
        let grid = Grid::new(facts.ladder.chunks.clone());
        let plan = Prefill::new(grid, limits.patience);
        Self { plan, prompts: BTreeMap::new(), pool, facts: facts.clone(), limits, keep, clock }
    }

    pub(super) fn queue(&mut self, start: StartPrefill) {
        let StartPrefill { sequence, job, chain, outlet } = start;
        let waiting = self.plan.waiting();
        if waiting >= self.limits.waiting_prompts {
            outlet.end(Err(Error::QueueFull { waiting }));
            return;
        }
        let asked = self.clock.now();
        let tokens = u32::try_from(job.prompt.len()).unwrap_or(u32::MAX);
        let ask = Ask { tokens, priority: Priority(job.priority), asked, deadline: job.deadline };
        self.plan.queue(sequence, ask);
        let row = SampleRow::pack(&job.sampling);
        let (began, cached, told, kept) = (None, 0, 0, 0);
        let marks = BTreeSet::new();
        let prompt = Prompt { job, chain, row, outlet, asked, began, cached, told, marks, kept };
        self.prompts.insert(sequence, prompt);
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

    /// Gives room to prompts in turn, as long as few enough are under way. How many of their tokens were cached.
    pub(super) fn admit(&mut self, now: Instant, device: &mut impl Device) -> Result<u64, DeviceFault> {
        let mut cached = 0;
        while self.plan.waiting() > 0 && self.in_turn() < self.limits.prompts_in_turn {
            let (mut hit, prompts, pool) = (None, &mut self.prompts, &self.pool);
            let admitted = self.plan.admit(now, |sequence, ask| {
                let Some(prompt) = prompts.get_mut(&sequence) else { return start_cold(pool, ask.tokens) };
                let Some(chain) = &prompt.chain else { return start_cold(pool, ask.tokens) };
                let Admitted { lease, hit: found, marks } = pool.admit(chain, Tokens(ask.tokens))?;
                let resume_at = found.as_ref().map_or(0, |hit: &Hit<Kept>| hit.resume_at.0);
                hit = found;
                prompt.marks = marks.into_iter().map(|mark| mark.0).collect();
                // What was told of before is not told again in part.
                let stops = prompt.marks.iter().copied().chain([prompt.told]);
                Ok(Start { lease, resume_at, marks: stops.collect() })
            });
            match admitted {
                Some(Ok(sequence)) => cached += self.begin(sequence, hit, device)?,
                Some(Err((sequence, refusal))) if !refusal.may_pass() => {
                    self.end(sequence, Err(refusal.into()));
                }
                Some(Err((sequence, _))) if self.make_way(sequence) => {}
                Some(Err(_)) | None => break,
            }
        }
        Ok(cached)
    }

    fn in_turn(&self) -> usize {
        let under_way = |sequence: &SequenceId| self.plan.lease(*sequence).is_some();
        self.prompts.iter().filter(|(sequence, prompt)| under_way(sequence) && prompt.keeps_up()).count()
    }

    /// The next chunk, of a prompt whose reader keeps up.
    pub(super) fn next_step(&self) -> Option<ChunkStep> {
        self.plan.next_step(|sequence| self.prompts.get(&sequence).is_some_and(Prompt::keeps_up))
    }

    /// Computes a chunk and tells its reader; before the first one, tells the reader what was cached.
    pub(super) fn run(&mut self, step: &ChunkStep, device: &mut impl Device) -> Result<Ran, DeviceFault> {
        let told = self.prompts.get(&step.sequence).map_or(0, |prompt| prompt.told);
        let ran = if told < step.start {
            self.tell_cached(step, told, device).map(|()| Ran::Told)
        } else {
            self.compute(step, device).map(|()| Ran::Computed)
        };
        self.fail_if(step.sequence, ran)
    }

    fn compute(&mut self, step: &ChunkStep, device: &mut impl Device) -> Result<(), DeviceFault> {
        let sequence = step.sequence;
        let Some(prompt) = self.prompts.get_mut(&sequence) else { return Ok(()) };
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
        let ChunkDone { latents, keys, draws } = done;
        prompt.tell(&self.facts, step, latents, keys);
        let slot = lease.slot();
        let kept_here = prompt.marks.contains(&step.end());
        let drawn = draws.filter(|_| step.is_last());
        let wanted = kept_here || drawn.is_some();
        let state = if wanted { Some(device.export_state(slot, step.end())?) } else { None };
        self.plan.complete(step);
        match (drawn, state) {
            (Some(draws), Some(state)) => {
                if kept_here {
                    self.keep(sequence, step.end(), state.clone());
                }
                let last = self.last(sequence, &draws, state, step.total);
                self.end(sequence, last);
                return Ok(());
            }
            (None, Some(state)) => self.keep(sequence, step.end(), state),
            (_, None) => {}
        }
        if self.plan.is_to_give_way(sequence) {
            self.plan.give_way(sequence);
        }
        Ok(())
    }

    fn last(
        &self,
        sequence: SequenceId,
        draws: &Draws,
        state: crate::SlotState,
        total: u32,
    ) -> Result<PrefillEvent, Error> {
        let prompt = self.prompts.get(&sequence).ok_or(Error::Stopped)?;
        let first = first_token(draws, prompt.job.sampling.logprobs);
        let first = first.ok_or(Error::NotFinite { position: total })?;
        let began = prompt.began.unwrap_or(prompt.asked);
        let timings = PrefillTimings {
            queued: began.duration_since(prompt.asked),
            computed: self.clock.now().duration_since(began),
        };
        Ok(PrefillEvent::Done { first, state, cached: prompt.cached, timings })
    }

    /// Ends every prompt under way: its state is gone. Those that wait have none yet.
    pub(super) fn lose_state(&mut self) {
        let under_way: Vec<SequenceId> =
            self.prompts.keys().copied().filter(|sequence| self.plan.lease(*sequence).is_some()).collect();
        for sequence in under_way {
            self.end(sequence, Err(Error::StateLost));
        }
    }

    fn fail_if<T>(&mut self, sequence: SequenceId, done: Result<T, DeviceFault>) -> Result<T, DeviceFault> {
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

fn start_cold(pool: &Pool, tokens: u32) -> Result<Start<Lease>, statepool::PoolError> {
    Ok(Start { lease: pool.reserve(tokens)?, resume_at: 0, marks: Vec::new() })
}

/// None where the logits were not finite.
fn first_token(draws: &Draws, wanted: Option<u32>) -> Option<SampledToken> {
    let id = draws.tokens.first().and_then(|id| u32::try_from(*id).ok())?;
    let (logprob, top) = draws.alternatives(0, wanted);
    Some(SampledToken { id, logprob, top })
}
