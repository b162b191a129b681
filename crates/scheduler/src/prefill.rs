use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use statepool::{Lease, NoRoom, Pool};

use crate::SequenceId;

#[cfg(test)]
mod tests;

/// Higher runs first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Priority(pub i32);

/// A prompt that wants to be prefilled.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// Prompt length in tokens, at least 1.
    pub tokens: u32,
    /// Higher is admitted first.
    pub priority: Priority,
    /// When the answer is worth nothing any more.
    pub deadline: Option<Instant>,
}

/// The absolute grid: chunks begin at multiples of the largest length, whatever came before, so that a run resumed
/// on the grid computes the same chunks as one that was not.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Ascending.
    lengths: Vec<u32>,
}

impl Grid {
    /// A grid from the chunk lengths that have a program. Without any there is nothing to plan.
    pub fn new(mut lengths: Vec<u32>) -> Self {
        lengths.retain(|length| *length > 0);
        lengths.sort_unstable();
        Self { lengths }
    }

    /// The chunk at `start` of a prompt of `total` tokens: how many of its tokens are real, and the length of the
    /// program that runs it. Only the last chunk may be shorter than the grid's.
    pub fn chunk(&self, start: u32, total: u32) -> Option<(u32, u32)> {
        let longest = *self.lengths.last()?;
        let valid = total.saturating_sub(start).min(longest);
        let length = self.lengths.iter().copied().find(|length| *length >= valid)?;
        Some((valid, length))
    }
}

/// One prefill step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkStep {
    /// Whose chunk.
    pub sequence: SequenceId,
    /// Position of the chunk's first token: a multiple of the grid's chunk length.
    pub start: u32,
    /// Real tokens in the chunk; the rest of `length` is padding.
    pub valid: u32,
    /// Length of the program.
    pub length: u32,
    /// Tokens of the prompt.
    pub total: u32,
}

impl ChunkStep {
    /// Position after the chunk's last real token.
    pub fn end(&self) -> u32 {
        self.start + self.valid
    }

    /// Whether this is the prompt's last chunk.
    pub fn is_last(&self) -> bool {
        self.end() >= self.total
    }
}

/// Prompts that wait for room, and prompts under way, one chunk at a time each in turn.
#[derive(Debug)]
pub struct Prefill {
    grid: Grid,
    /// Asks not yet admitted, in the order of arrival.
    waiting: BTreeMap<SequenceId, Ask>,
    running: BTreeMap<SequenceId, Running>,
    /// The order in which running sequences get their next chunk.
    turns: VecDeque<SequenceId>,
}

#[derive(Debug)]
struct Running {
    ask: Ask,
    lease: Lease,
    done: u32,
}

impl Prefill {
    /// An empty planner on `grid`.
    pub fn new(grid: Grid) -> Self {
        Self { grid, waiting: BTreeMap::new(), running: BTreeMap::new(), turns: VecDeque::new() }
    }

    /// Queues a prompt. Ids ascend in the order of arrival.
    pub fn queue(&mut self, sequence: SequenceId, ask: Ask) {
        self.waiting.insert(sequence, ask);
    }

    /// Admits the next waiting prompt (by priority, then deadline, then age) if the pool has room for it. One that
    /// waits for room is not overtaken by a shorter one, or it could wait for ever.
    pub fn admit(&mut self, pool: &Pool) -> Option<Result<SequenceId, (SequenceId, NoRoom)>> {
        let (&sequence, &ask) = self.waiting.iter().min_by_key(|(id, ask)| rank(**id, ask))?;
        match pool.reserve(ask.tokens) {
            Ok(lease) => {
                self.waiting.remove(&sequence);
                self.running.insert(sequence, Running { ask, lease, done: 0 });
                self.turns.push_back(sequence);
                Some(Ok(sequence))
            }
            Err(no_room) => Some(Err((sequence, no_room))),
        }
    }

    /// The next chunk: of the first sequence in turn that is `ready` (its consumer keeps up). Nothing changes until
    /// [`Prefill::complete`] says that it ran.
    pub fn next_step(&self, mut ready: impl FnMut(SequenceId) -> bool) -> Option<ChunkStep> {
        let sequence = *self.turns.iter().find(|sequence| ready(**sequence))?;
        let running = self.running.get(&sequence)?;
        let total = running.ask.tokens;
        let (valid, length) = self.grid.chunk(running.done, total)?;
        Some(ChunkStep { sequence, start: running.done, valid, length, total })
    }

    /// The chunk ran: its sequence goes to the end of the line.
    pub fn complete(&mut self, step: &ChunkStep) {
        if let Some(running) = self.running.get_mut(&step.sequence) {
            running.done = step.end();
            self.turns.retain(|sequence| *sequence != step.sequence);
            self.turns.push_back(step.sequence);
        }
    }

    /// The pages and slot of a sequence under way.
    pub fn lease(&self, sequence: SequenceId) -> Option<&Lease> {
        self.running.get(&sequence).map(|running| &running.lease)
    }

    /// Forgets a sequence, done or not, and gives back what it held.
    pub fn remove(&mut self, sequence: SequenceId) {
        self.waiting.remove(&sequence);
        if self.running.remove(&sequence).is_some() {
            self.turns.retain(|turn| *turn != sequence);
        }
    }

    /// The sequences whose deadline has passed; the caller removes them.
    pub fn expired(&self, now: Instant) -> impl Iterator<Item = SequenceId> {
        let late = move |ask: &Ask| ask.deadline.is_some_and(|deadline| deadline <= now);
        let waiting = self.waiting.iter().filter(move |(_, ask)| late(ask)).map(|(id, _)| *id);
        let running = self.running.iter().filter(move |(_, run)| late(&run.ask)).map(|(id, _)| *id);
        waiting.chain(running)
    }

    /// The earliest deadline among all sequences.
    pub fn next_deadline(&self) -> Option<Instant> {
        let waiting = self.waiting.values().filter_map(|ask| ask.deadline);
        let running = self.running.values().filter_map(|running| running.ask.deadline);
        waiting.chain(running).min()
    }

    /// Prompts waiting for room.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Prompts under way.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Prompt tokens not yet computed, waiting and under way.
    pub fn queued_tokens(&self) -> u64 {
        let waiting = self.waiting.values().map(|ask| u64::from(ask.tokens));
        let running = self.running.values().map(|run| u64::from(run.ask.tokens.saturating_sub(run.done)));
        waiting.chain(running).sum()
    }
}

/// Smaller goes first: higher priority, then the nearer deadline (none is the farthest), then age.
fn rank(sequence: SequenceId, ask: &Ask) -> (std::cmp::Reverse<Priority>, bool, Option<Instant>, SequenceId) {
    (std::cmp::Reverse(ask.priority), ask.deadline.is_none(), ask.deadline, sequence)
}
