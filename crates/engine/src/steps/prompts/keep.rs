//! What a prompt leaves behind, and who gives way to whom.

use prefix::Tokens;
use scheduler::SequenceId;
use statepool::{Finished, Published};

use super::Prompts;
use crate::{Kept, SlotState};

impl Prompts {
    /// Keeps a prompt's state after `end` tokens, which the device has given out: all steps before are done.
    pub(super) fn keep(&mut self, sequence: SequenceId, end: u32, state: SlotState) {
        let value_dim = self.facts.state.value_dim;
        let (Some(prompt), Some(lease)) = (self.prompts.get_mut(&sequence), self.plan.lease_mut(sequence))
        else {
            return;
        };
        let kept = Kept::new(state, end, self.keep, value_dim);
        match lease.publish(Finished { tokens: Tokens(end) }, kept) {
            Ok(Published::NoBudget) => {}
            Ok(_) => prompt.kept = end,
            // The prompt's own state is as it was, and nobody will find what was refused.
            Err(error) => {
                tracing::error!(request_id = prompt.job.request_id, %error, "state not kept");
            }
        }
    }

    /// Makes a prompt of lower priority give its room to one that waits: at once, where all it has computed is kept, or else
    /// at its next boundary, where it will be. Whether someone did at once.
    pub(super) fn make_way(&mut self, waiting: SequenceId) -> bool {
        let Some(victim) = self.plan.victim(waiting) else { return false };
        let (Some(prompt), Some(done)) = (self.prompts.get_mut(&victim), self.plan.done(victim)) else {
            return false;
        };
        if prompt.kept == done {
            self.plan.give_way(victim);
            return true;
        }
        let Some(chain) = &prompt.chain else { return false };
        let next = chain.boundaries().map(|boundary| boundary.tokens.0).find(|position| *position > done);
        // Without one before its end it is as good as done.
        if let Some(next) = next.filter(|next| (*next as usize) < prompt.job.prompt.len()) {
            prompt.marks.insert(next);
            self.plan.yield_at(victim, next);
        }
        false
    }
}
