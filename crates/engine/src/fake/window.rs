//! One decode step of one row of the fake device.

use super::memory::{Memory, POOL, hidden_of, pool_key};
use super::{begin, convolve, fold, mix};

/// A row of a step.
pub(super) struct Row<'a> {
    pub(super) pages: &'a [i32],
    pub(super) slot: usize,
    pub(super) position: u32,
    pub(super) token: i32,
    /// Tokens of the last window that counted.
    pub(super) accepted: i32,
    pub(super) recent: &'a [i32],
    pub(super) sampling: (&'a [u32], &'a [f32]),
    pub(super) vocabulary: usize,
}

impl Row<'_> {
    /// Draws a window of which the first `right` drafts are what is drawn in their places; how many tokens count.
    pub(super) fn run(&self, memory: &mut Memory, right: usize, drawn: &mut Vec<i32>) -> i32 {
        let (window, at) = (memory.window(), self.slot * memory.window());
        let (mut recurrent, mut tail) = memory.slot(self.slot);
        // Without drafts every token moves the state at once.
        let pending = if window > 1 { self.accepted.max(0) as usize } else { 0 };
        for place in at..at + pending {
            recurrent = fold(recurrent, memory.windows[place]);
            tail = memory.windows[place];
        }
        memory.set_slot(self.slot, recurrent, tail);
        let mut strange = if window > 1 { self.catch_up(memory) } else { 0 };
        let (mut token, mut counted) = (self.token as f32, 0);
        let mut alive = true;
        for (turn, position) in (self.position..).take(window).enumerate() {
            if turn + 1 < window {
                memory.line(1, self.pages, self.slot, position - 1, token);
            }
            memory.line(0, self.pages, self.slot, position, token);
            if turn == 0 && window > 1 {
                strange += self.strange_lines(memory);
            }
            memory.windows[at + turn] = token;
            memory.hidden[at + turn] = hidden_of(token, position);
            recurrent = fold(recurrent, token);
            let next = draw(memory, self, position + 1, (recurrent, convolve(tail, token)), strange);
            tail = token;
            drawn.push(next);
            counted += i32::from(alive);
            let draft = if turn < right { next } else { (next + 1).rem_euclid(self.vocabulary as i32) };
            alive &= next >= 0 && draft == next;
            token = draft.max(0) as f32;
        }
        if window == 1 {
            memory.set_slot(self.slot, recurrent, tail);
        }
        counted
    }

    /// Writes the draft layer's lines of what the last window accepted, but for the newest; how many of its vectors are not
    /// those of the tokens.
    fn catch_up(&self, memory: &mut Memory) -> u64 {
        let counted = self.accepted.max(1) as u32;
        let at = self.slot * memory.window();
        let mut strange = 0;
        for (place, position) in (self.position - counted..self.position).enumerate() {
            let token = memory.token(0, self.pages, position).unwrap_or(f32::NAN);
            strange += u64::from(memory.hidden[at + place] != hidden_of(token, position));
            if position + 1 < self.position {
                let next = self.recent[place] as f32;
                memory.line(1, self.pages, self.slot, position, next);
            }
        }
        strange
    }

    /// How many of the draft layer's lines and keys before this position are not those of the tokens.
    fn strange_lines(&self, memory: &Memory) -> u64 {
        let token = |position| memory.token(0, self.pages, position);
        let mut strange = 0;
        for line in 0..self.position {
            let own = memory.token(1, self.pages, line);
            strange += u64::from(own.is_none() || own != token(line + 1));
        }
        for pool in 0..self.position / POOL as u32 {
            let first = pool * POOL as u32 + 1;
            let tokens = (first..first + POOL as u32).map(|position| token(position).unwrap_or(f32::NAN));
            strange += u64::from(memory.key(1, self.pages, pool) != pool_key(tokens));
        }
        strange
    }
}

/// Draws the token at `position` from everything the sequence has, `slot` included; -1 when some of it was never written.
pub(super) fn draw(memory: &Memory, row: &Row<'_>, position: u32, slot: (f32, f32), strange: u64) -> i32 {
    let mut hash = begin(row.sampling, position);
    for before in 0..position {
        let Some(token) = memory.token(0, row.pages, before) else { return -1 };
        hash = mix(hash, token);
    }
    let keys = (0..position / POOL as u32).map(|pool| memory.key(0, row.pages, pool));
    for value in keys.chain([slot.0, slot.1]) {
        if !value.is_finite() {
            return -1;
        }
        hash = mix(hash, value);
    }
    ((hash ^ strange) % row.vocabulary as u64) as i32
}
