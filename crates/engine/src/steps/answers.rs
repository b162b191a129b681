use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use programs::ShapeLadder;
use programs::sampling::SampleRow;
use scheduler::{Decode, SequenceId};
use statepool::Lease;

use super::rows::{Packer, Row};
use crate::command::{Epoch, StartDecode};
use crate::outlet::{NotSent, Outlet};
use crate::{
    DecodeEvent, DecodeJob, Device, DeviceFault, Draws, EndReason, Error, Limits, SampledToken, SlotRows,
};

/// The sequences that draw tokens, and their readers.
#[derive(Debug)]
pub(super) struct Answers {
    plan: Decode,
    answers: HashMap<SequenceId, Answer>,
    packer: Packer,
    draws: Draws,
    context: u32,
    limits: Limits,
}

#[derive(Debug)]
struct Answer {
    lease: Arc<Lease>,
    job: DecodeJob,
    row: SampleRow,
    outlet: Outlet<DecodeEvent>,
    /// Drawn last and not yet consumed.
    token: u32,
    /// Where it stands.
    position: u32,
    /// Tokens that may still be drawn.
    left: u32,
}

impl Answers {
    pub(super) fn new(ladder: &ShapeLadder, limits: Limits) -> Self {
        Self {
            plan: Decode::new(ladder.batches.clone()),
            answers: HashMap::new(),
            packer: Packer::new(ladder),
            draws: Draws::default(),
            context: ladder.context,
            limits,
        }
    }

    /// Lets an imported sequence join.
    pub(super) fn begin(
        &mut self,
        start: StartDecode,
        epoch: Epoch,
        device: &mut impl Device,
    ) -> Result<(), DeviceFault> {
        let StartDecode { sequence, lease, capacity, epoch: imported, job, outlet } = start;
        if imported != epoch {
            drop(lease);
            outlet.end(Err(Error::StateLost));
            return Ok(());
        }
        let most = capacity.min(self.context).saturating_sub(job.prompt_len);
        let left = job.sampling.max_tokens.unwrap_or(u32::MAX).min(most).saturating_sub(1);
        let (token, position) = (job.first_token, job.prompt_len);
        if let Some(reason) = ended(&job, token, left) {
            drop(lease);
            outlet.end(Ok(DecodeEvent::Ended { reason }));
            return Ok(());
        }
        if job.sampling.needs_slot_rows() {
            let rows = SlotRows {
                seen: &job.prompt_seen,
                counts: &job.output_counts,
                bias: &job.sampling.logit_bias,
            };
            if let Err(fault) = device.set_sampling(lease.slot(), &rows) {
                drop(lease);
                outlet.end(Err((&fault).into()));
                return Err(fault);
            }
        }
        tracing::debug!(request_id = job.request_id, slot = lease.slot().0, position, "answer begins");
        let row = SampleRow::pack(&job.sampling);
        self.answers.insert(sequence, Answer { lease, job, row, outlet, token, position, left });
        self.plan.join(sequence);
        Ok(())
    }

    /// Ends what nobody reads any more and what comes too late.
    pub(super) fn sweep(&mut self, now: Instant) {
        let abandoned = self.matching(|answer| answer.outlet.is_abandoned());
        for sequence in abandoned {
            self.plan.leave(sequence);
            self.answers.remove(&sequence);
        }
        let late = self.matching(|answer| answer.job.deadline.is_some_and(|deadline| deadline <= now));
        for sequence in late {
            self.end(sequence, Err(Error::DeadlinePassed { phase: "decode" }));
        }
    }

    /// Packs the next step; the number of sequences in it, or none if there is no step to run.
    pub(super) fn plan(&mut self) -> Option<u32> {
        let (sequences, batch) = self.plan.next_step()?;
        let answers = &self.answers;
        self.packer.pack(sequences, batch, |sequence| {
            let answer = answers.get(&sequence)?;
            Some(Row {
                token: answer.token,
                position: answer.position,
                lease: &answer.lease,
                sampling: &answer.row,
                logprobs: answer.job.sampling.logprobs.is_some(),
            })
        });
        u32::try_from(sequences.len()).ok()
    }

    /// Runs the packed step and tells the readers.
    pub(super) fn run(&mut self, device: &mut impl Device) -> Result<(), DeviceFault> {
        let ran = device.decode(self.packer.rows(), &mut self.draws);
        let sequences = self.packer.packed().to_vec();
        if let Err(fault) = ran {
            self.packer.forget();
            for sequence in sequences {
                self.end(sequence, Err(Error::Device { message: fault.message.clone() }));
            }
            return Err(fault);
        }
        for (place, sequence) in sequences.into_iter().enumerate() {
            if let Some(last) = self.deliver(place, sequence) {
                self.end(sequence, last);
            }
        }
        Ok(())
    }

    /// Hands a drawn token to its reader; how the sequence ends, if it does.
    fn deliver(&mut self, place: usize, sequence: SequenceId) -> Option<Result<DecodeEvent, Error>> {
        let answer = self.answers.get_mut(&sequence)?;
        let position = answer.position + 1;
        let drawn = self.draws.tokens.get(place).and_then(|id| u32::try_from(*id).ok());
        let Some(id) = drawn else { return Some(Err(Error::NotFinite { position })) };
        answer.token = id;
        answer.position = position;
        answer.left -= 1;
        let (logprob, top) = self.draws.alternatives(place, answer.job.sampling.logprobs);
        let tokens = vec![SampledToken { id, logprob, top }];
        match answer.outlet.send(DecodeEvent::Tokens { position, tokens }) {
            Ok(()) => {}
            // The next sweep removes it.
            Err(NotSent::Gone) => return None,
            Err(NotSent::Full) => return Some(Err(Error::SlowReader { events: self.limits.unread_tokens })),
        }
        ended(&answer.job, id, answer.left).map(|reason| Ok(DecodeEvent::Ended { reason }))
    }

    /// Ends every sequence: its state is gone.
    pub(super) fn lose_state(&mut self) {
        self.packer.forget();
        for sequence in self.matching(|_| true) {
            self.end(sequence, Err(Error::StateLost));
        }
    }

    /// Gives the room back, then tells the reader, who may count on it.
    fn end(&mut self, sequence: SequenceId, last: Result<DecodeEvent, Error>) {
        self.plan.leave(sequence);
        let Some(Answer { lease, job, outlet, .. }) = self.answers.remove(&sequence) else { return };
        if let Err(error) = &last {
            tracing::info!(request_id = job.request_id, %error, "answer ended early");
        }
        drop(lease);
        outlet.end(last);
    }

    fn matching(&self, fits: impl Fn(&Answer) -> bool) -> Vec<SequenceId> {
        self.answers.iter().filter(|(_, answer)| fits(answer)).map(|(sequence, _)| *sequence).collect()
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.answers.values().filter_map(|answer| answer.job.deadline).min()
    }

    pub(super) fn running(&self) -> usize {
        self.plan.running()
    }
}

/// Why a sequence ends after `token`, if it does.
fn ended(job: &DecodeJob, token: u32, left: u32) -> Option<EndReason> {
    if job.ends_at(token) {
        return Some(EndReason::EndToken(token));
    }
    (left == 0).then_some(EndReason::Length)
}
