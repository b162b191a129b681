use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use statepool::PoolError;

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
    /// When it was asked for.
    pub asked: Instant,
    /// When the answer is worth nothing any more.
    pub deadline: Option<Instant>,
}

/// The absolute grid: chunks end at multiples of the largest length, whatever came before, so that a run resumed
/// at a checkpoint comes back to the chunks of one that was not.
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
    /// program that runs it. It ends on the grid, or before at the prompt's end or at the first of `marks` that comes.
    pub fn chunk(&self, start: u32, total: u32, marks: &BTreeSet<u32>) -> Option<(u32, u32)> {
        let longest = *self.lengths.last()?;
        let line = (start / longest).saturating_add(1).saturating_mul(longest);
        let mark = marks.range(start.saturating_add(1)..).next().copied().unwrap_or(u32::MAX);
        let valid = total.min(line).min(mark).saturating_sub(start);
        let length = self.lengths.iter().copied().find(|length| *length >= valid)?;
        Some((valid, length))
    }
}

/// One prefill step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkStep {
    /// Whose chunk.
    pub sequence: SequenceId,
    /// Position of the chunk's first token.
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

/// What a prompt begins with when there is room for it.
#[derive(Debug)]
pub struct Start<L> {
    /// Its pages and slot.
    pub lease: L,
    /// Tokens that need not be computed: their state is there already.
    pub resume_at: u32,
    /// Positions at which a chunk has to end.
    pub marks: Vec<u32>,
}

/// Prompts that wait for room, and prompts under way, one chunk at a time each in turn. `L` is what holds room.
#[derive(Debug)]
pub struct Prefill<L> {
    grid: Grid,
    patience: Duration,
    /// Asks not yet admitted, in the order of arrival.
    waiting: BTreeMap<SequenceId, Ask>,
    running: BTreeMap<SequenceId, Running<L>>,
    /// The order in which running sequences get their next chunk.
    turns: VecDeque<SequenceId>,
}

#[derive(Debug)]
struct Running<L> {
    ask: Ask,
    lease: L,
    done: u32,
    marks: BTreeSet<u32>,
    /// Where it gives its room to another.
    yields_at: Option<u32>,
}

impl<L> Prefill<L> {
    /// An empty planner on `grid`. A prompt that waits for room lets others pass until it is `patience` old.
    pub fn new(grid: Grid, patience: Duration) -> Self {
        Self { grid, patience, waiting: BTreeMap::new(), running: BTreeMap::new(), turns: VecDeque::new() }
    }

    /// Queues a prompt. Ids ascend in the order of arrival.
    pub fn queue(&mut self, sequence: SequenceId, ask: Ask) {
        self.waiting.insert(sequence, ask);
    }

    /// Admits a waiting prompt: of those that find room the first by priority, then deadline, then age. One that needs
    /// more than is free is overtaken only while it is younger than `patience`, or it could wait for ever. An error is the
    /// first one's: nobody who may pass it has room.
    pub fn admit(
        &mut self,
        now: Instant,
        mut reserve: impl FnMut(SequenceId, &Ask) -> Result<Start<L>, PoolError>,
    ) -> Option<Result<SequenceId, (SequenceId, PoolError)>> {
        let mut line: Vec<_> = self.waiting.iter().map(|(id, ask)| rank(*id, ask)).collect();
        line.sort_unstable();
        let mut refused = None;
        for (.., sequence) in line {
            let ask = *self.waiting.get(&sequence)?;
            match reserve(sequence, &ask) {
                Ok(start) => {
                    self.waiting.remove(&sequence);
                    self.begin(sequence, ask, start);
                    return Some(Ok(sequence));
                }
                Err(refusal) => {
                    let first = refused.get_or_insert((sequence, refusal));
                    if !first.1.may_pass() || now.saturating_duration_since(ask.asked) >= self.patience {
                        break;
                    }
                }
            }
        }
        refused.map(Err)
    }

    fn begin(&mut self, sequence: SequenceId, ask: Ask, start: Start<L>) {
        let Start { lease, resume_at, marks } = start;
        let marks = marks.into_iter().collect();
        self.running.insert(sequence, Running { ask, lease, done: resume_at, marks, yields_at: None });
        self.turns.push_back(sequence);
    }

    /// Who should give room to the waiting prompt `sequence`: of those under way with a lower priority the last one, unless
    /// one of them is already about to.
    pub fn victim(&self, sequence: SequenceId) -> Option<SequenceId> {
        let asking = self.waiting.get(&sequence)?;
        let lower = || self.running.iter().filter(|(_, run)| run.ask.priority < asking.priority);
        if lower().any(|(_, run)| run.yields_at.is_some()) {
            return None;
        }
        lower().max_by_key(|(id, run)| rank(**id, &run.ask)).map(|(id, _)| *id)
    }

    /// From now on a chunk of `sequence` ends at `position`, where it gives its room away: see [`Prefill::give_way`].
    pub fn yield_at(&mut self, sequence: SequenceId, position: u32) {
        if let Some(running) = self.running.get_mut(&sequence) {
            running.marks.insert(position);
            running.yields_at = Some(position);
        }
    }

    /// Whether a sequence has come to where it gives its room away.
    pub fn is_to_give_way(&self, sequence: SequenceId) -> bool {
        self.running.get(&sequence).is_some_and(|run| run.yields_at.is_some_and(|at| run.done >= at))
    }

    /// Lets a sequence under way wait again, without room, as old as it is.
    pub fn give_way(&mut self, sequence: SequenceId) {
        if let Some(running) = self.running.remove(&sequence) {
            self.turns.retain(|turn| *turn != sequence);
            self.waiting.insert(sequence, running.ask);
        }
    }

    /// Tokens of a sequence under way that are computed.
    pub fn done(&self, sequence: SequenceId) -> Option<u32> {
        self.running.get(&sequence).map(|running| running.done)
    }

    /// The next chunk: of the first sequence in turn that is `ready` (its consumer keeps up). Nothing changes until
    /// [`Prefill::complete`] says that it ran.
    pub fn next_step(&self, mut ready: impl FnMut(SequenceId) -> bool) -> Option<ChunkStep> {
        let sequence = *self.turns.iter().find(|sequence| ready(**sequence))?;
        let running = self.running.get(&sequence)?;
        let total = running.ask.tokens;
        let (valid, length) = self.grid.chunk(running.done, total, &running.marks)?;
        Some(ChunkStep { sequence, start: running.done, valid, length, total })
    }

    /// The chunk ran: its sequence goes to the end of the line.
    pub fn complete(&mut self, step: &ChunkStep) {
        if let Some(running) = self.running.get_mut(&step.sequence) {
            running.done = step.end();
            self.pass(step.sequence);
        }
    }

    /// Sends a sequence under way to the end of the line.
    pub fn pass(&mut self, sequence: SequenceId) {
        if self.running.contains_key(&sequence) {
            self.turns.retain(|turn| *turn != sequence);
            self.turns.push_back(sequence);
        }
    }

    /// The pages and slot of a sequence under way.
    pub fn lease(&self, sequence: SequenceId) -> Option<&L> {
        self.running.get(&sequence).map(|running| &running.lease)
    }

    /// The same, to change.
    pub fn lease_mut(&mut self, sequence: SequenceId) -> Option<&mut L> {
        self.running.get_mut(&sequence).map(|running| &mut running.lease)
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
