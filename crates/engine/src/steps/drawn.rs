//! What one step draws for one sequence, cut at the answer's end.

use std::ops::AddAssign;

use crate::{DecodeJob, DraftCounts, Draws, EndReason, SampledToken};

/// Counts of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Drawn {
    /// Tokens that the reader gets.
    pub(super) tokens: u32,
    pub(super) drafts: DraftCounts,
}

impl AddAssign for Drawn {
    fn add_assign(&mut self, more: Self) {
        self.tokens += more.tokens;
        self.drafts += more.drafts;
    }
}

/// The tokens of one window that count, up to the answer's end if that is among them.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) tokens: Vec<SampledToken>,
    /// Why the answer ends with them.
    pub(super) last: Option<EndReason>,
    /// Whether the logits after them are not finite.
    pub(super) not_finite: bool,
    /// Drafts that the window verified, and how many it accepted.
    drafted: usize,
    accepted: usize,
}

impl Run {
    /// The window in place `place` of a step, for an answer that may draw `left` more tokens.
    pub(super) fn of(draws: &Draws, place: usize, window: usize, left: u32, job: &DecodeJob) -> Self {
        let counted = draws.counts.get(place).and_then(|count| usize::try_from(*count).ok());
        let counted = counted.unwrap_or_default().min(window);
        let mut run = Self { drafted: window - 1, accepted: counted.saturating_sub(1), ..Self::default() };
        // A window always draws: one that does not count a token drew none that can be shown.
        run.not_finite = counted == 0;
        for row in (place * window..).take(counted) {
            let id = draws.tokens.get(row).and_then(|id| u32::try_from(*id).ok());
            let Some(id) = id else {
                run.not_finite = true;
                break;
            };
            let (logprob, top) = draws.alternatives(row, job.sampling.logprobs);
            run.tokens.push(SampledToken { id, logprob, top });
            let left = left.saturating_sub(u32::try_from(run.tokens.len()).unwrap_or(u32::MAX));
            run.last = ended(job, id, left);
            if run.last.is_some() {
                break;
            }
        }
        run
    }

    pub(super) fn drawn(&self) -> Drawn {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let accepted = self.accepted.min(self.tokens.len());
        let drafts = DraftCounts { verified: count(self.drafted), accepted: count(accepted) };
        Drawn { tokens: count(self.tokens.len()), drafts }
    }
}

/// Why an answer ends after `token`, if it does, when it may draw `left` more.
pub(super) fn ended(job: &DecodeJob, token: u32, left: u32) -> Option<EndReason> {
    if job.ends_at(token) {
        return Some(EndReason::EndToken(token));
    }
    (left == 0).then_some(EndReason::Length)
}
