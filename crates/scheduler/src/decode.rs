use crate::SequenceId;

#[cfg(test)]
mod tests;

/// The running set of a decode engine: sequences join and leave between any two steps.
#[derive(Debug)]
pub struct Decode {
    /// Batch sizes that have a program, ascending.
    buckets: Vec<u32>,
    running: Vec<SequenceId>,
    /// Where in `running` the next step begins, when one step can not hold all.
    turn: usize,
    rows: Vec<SequenceId>,
}

impl Decode {
    /// A planner for the given batch sizes.
    pub fn new(mut buckets: Vec<u32>) -> Self {
        buckets.retain(|size| *size > 0);
        buckets.sort_unstable();
        Self { buckets, running: Vec::new(), turn: 0, rows: Vec::new() }
    }

    /// From the next step on, `sequence` takes part.
    pub fn join(&mut self, sequence: SequenceId) {
        if !self.running.contains(&sequence) {
            self.running.push(sequence);
        }
    }

    /// From the next step on, `sequence` takes no part.
    pub fn leave(&mut self, sequence: SequenceId) {
        let Some(at) = self.running.iter().position(|running| *running == sequence) else { return };
        self.running.remove(at);
        if at < self.turn {
            self.turn -= 1;
        }
    }

    /// Sequences that take part.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// The rows of the next step and the batch size that holds them: everyone when the largest batch allows, else
    /// the next ones in turn, so that each sequence runs once in every ceil(running / largest) steps.
    pub fn next_step(&mut self) -> Option<(&[SequenceId], u32)> {
        let largest = *self.buckets.last()? as usize;
        let count = self.running.len();
        if count == 0 {
            return None;
        }
        self.rows.clear();
        if count <= largest {
            self.turn = 0;
            self.rows.extend_from_slice(&self.running);
        } else {
            let begin = self.turn % count;
            self.rows.extend(self.running.iter().cycle().skip(begin).take(largest));
            self.turn = (begin + largest) % count;
        }
        let rows = self.rows.len();
        let bucket = self.buckets.iter().copied().find(|size| *size as usize >= rows)?;
        Some((&self.rows, bucket))
    }
}
