use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use programs::ShapeLadder;
use programs::sampling::SampleRow;
use scheduler::{Decode, SequenceId};

use super::drawn::{Drawn, Run, ended};
use super::rows::{Packer, Row};
use crate::command::{Epoch, StartDecode};
use crate::outlet::{NotSent, Outlet};
use crate::{DecodeEvent, DecodeJob, Device, DeviceFault, Draws, Error, Lease, Limits, SlotRows};

/// How an answer ends.
type Last = Result<DecodeEvent, Error>;

/// The sequences that draw tokens, and their readers.
#[derive(Debug)]
pub(super) struct Answers {
    plan: Decode,
    answers: BTreeMap<SequenceId, Answer>,
    packer: Packer,
    draws: Draws,
    context: u32,
    window: usize,
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
    /// How many tokens of the last window counted; 0 before the first.
    counted: u32,
    /// Those tokens; before the first window the one to consume.
    recent: Vec<u32>,
}

impl Answers {
    pub(super) fn new(ladder: &ShapeLadder, limits: Limits) -> Self {
        Self {
            plan: Decode::new(ladder.batches.clone()),
            answers: BTreeMap::new(),
            packer: Packer::new(ladder),
            draws: Draws::default(),
            context: ladder.context,
            window: ladder.window() as usize,
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
        let (counted, recent) = (0, vec![token]);
        let answer = Answer { lease, job, row, outlet, token, position, left, counted, recent };
        self.answers.insert(sequence, answer);
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

    /// Packs the next step; whether there is one to run.
    pub(super) fn plan(&mut self) -> bool {
        let Some((sequences, batch)) = self.plan.next_step() else { return false };
        let answers = &self.answers;
        self.packer.pack(sequences, batch, |sequence| {
            let answer = answers.get(&sequence)?;
            Some(Row {
                token: answer.token,
                position: answer.position,
                accepted: answer.counted,
                recent: &answer.recent,
                lease: &answer.lease,
                sampling: &answer.row,
                logprobs: answer.job.sampling.logprobs.is_some(),
            })
        });
        true
    }

    /// Runs the packed step and tells the readers; what it drew.
    pub(super) fn run(&mut self, device: &mut impl Device) -> Result<Drawn, DeviceFault> {
        let ran = device.decode(self.packer.rows(), &mut self.draws);
        let sequences = self.packer.packed().to_vec();
        if let Err(fault) = ran {
            self.packer.forget();
            for sequence in sequences {
                self.end(sequence, Err(Error::Device { message: fault.message.clone() }));
            }
            return Err(fault);
        }
        let mut all = Drawn::default();
        for (place, sequence) in sequences.into_iter().enumerate() {
            let Some((drawn, last)) = self.deliver(place, sequence) else { continue };
            all += drawn;
            if let Some(last) = last {
                self.end(sequence, last);
            }
        }
        Ok(all)
    }

    /// Hands what a window drew to its reader; what it drew, and how the sequence ends, if it does.
    fn deliver(&mut self, place: usize, sequence: SequenceId) -> Option<(Drawn, Option<Last>)> {
        let answer = self.answers.get_mut(&sequence)?;
        let run = Run::of(&self.draws, place, self.window, answer.left, &answer.job);
        let drawn = run.drawn();
        let first = answer.position + 1;
        answer.position += drawn.tokens;
        answer.left -= drawn.tokens;
        answer.counted = drawn.tokens;
        answer.recent.clear();
        answer.recent.extend(run.tokens.iter().map(|token| token.id));
        answer.token = answer.recent.last().copied().unwrap_or(answer.token);
        let last = match run.last {
            Some(reason) => Some(Ok(DecodeEvent::Ended { reason })),
            None if run.not_finite => Some(Err(Error::NotFinite { position: answer.position + 1 })),
            None => None,
        };
        if run.tokens.is_empty() {
            return Some((drawn, last));
        }
        let event = DecodeEvent::Tokens { position: first, tokens: run.tokens, drafts: drawn.drafts };
        let last = match answer.outlet.send(event) {
            Ok(()) => last,
            // The next sweep removes it.
            Err(NotSent::Gone) => None,
            Err(NotSent::Full) => Some(Err(Error::SlowReader { events: self.limits.unread_tokens })),
        };
        Some((drawn, last))
    }

    /// Ends every sequence: its state is gone.
    pub(super) fn lose_state(&mut self) {
        self.packer.forget();
        for sequence in self.matching(|_| true) {
            self.end(sequence, Err(Error::StateLost));
        }
    }

    /// Gives the room back, then tells the reader, who may count on it.
    fn end(&mut self, sequence: SequenceId, last: Last) {
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
