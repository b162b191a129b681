use programs::ShapeLadder;
use programs::sampling::{REALS, SampleRow, WORDS};
use scheduler::SequenceId;
use statepool::SlotId;

use crate::{Lease, Rows};

/// Packs decode steps, and packs again only what changed since the last one.
#[derive(Debug)]
pub(super) struct Packer {
    rows: Rows,
    /// Whose rows are packed, in order.
    packed: Vec<SequenceId>,
    pages_per_sequence: usize,
    window: usize,
    trash_page: i32,
    trash_slot: i32,
    padding: SampleRow,
}

/// One sequence's part of a step.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) token: u32,
    pub(super) position: u32,
    /// How many tokens of the last window counted; 0 before the first.
    pub(super) accepted: u32,
    /// Those tokens, or the one to consume; at most a window.
    pub(super) recent: &'a [u32],
    pub(super) lease: &'a Lease,
    pub(super) sampling: &'a SampleRow,
    pub(super) logprobs: bool,
}

impl Packer {
    pub(super) fn new(ladder: &ShapeLadder) -> Self {
        Self {
            rows: Rows::default(),
            packed: Vec::new(),
            pages_per_sequence: ladder.pages_per_sequence() as usize,
            window: ladder.window() as usize,
            trash_page: signed(ladder.trash_page()),
            trash_slot: signed(ladder.trash_slot()),
            padding: SampleRow::padding(),
        }
    }

    /// The step in which `sequences` run with the given batch size.
    pub(super) fn pack<'a>(
        &mut self,
        sequences: &[SequenceId],
        batch: u32,
        mut row: impl FnMut(SequenceId) -> Option<Row<'a>>,
    ) {
        let same = self.rows.batch == batch && self.packed == sequences;
        if !same {
            self.begin(sequences, batch);
        }
        for (place, sequence) in sequences.iter().enumerate() {
            let Some(row) = row(*sequence) else { continue };
            self.rows.tokens[place] = signed(row.token);
            self.rows.positions[place] = signed(row.position);
            self.rows.accepted[place] = signed(row.accepted);
            let recent = &mut self.rows.recent[place * self.window..(place + 1) * self.window];
            recent.fill(0);
            for (place, token) in recent.iter_mut().zip(row.recent) {
                *place = signed(*token);
            }
            if !same {
                self.place(place, row.lease.slot(), &row);
            }
        }
    }

    /// The packed step.
    pub(super) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Whose rows they are.
    pub(super) fn packed(&self) -> &[SequenceId] {
        &self.packed
    }

    /// After a step that failed, what the device kept in place may be gone.
    pub(super) fn forget(&mut self) {
        self.packed.clear();
        self.rows.batch = 0;
    }

    /// Everything padding.
    fn begin(&mut self, sequences: &[SequenceId], batch: u32) {
        let places = batch as usize;
        let rows = &mut self.rows;
        rows.batch = batch;
        rows.composition += 1;
        rows.logprobs = false;
        refill(&mut rows.tokens, places, 0);
        refill(&mut rows.positions, places, 0);
        refill(&mut rows.accepted, places, 0);
        refill(&mut rows.recent, places * self.window, 0);
        refill(&mut rows.slots, places, self.trash_slot);
        refill(&mut rows.page_table, places * self.pages_per_sequence, self.trash_page);
        rows.words.clear();
        rows.reals.clear();
        for _ in 0..places {
            rows.words.extend_from_slice(&self.padding.words);
            rows.reals.extend_from_slice(&self.padding.reals);
        }
        self.packed.clear();
        self.packed.extend_from_slice(sequences);
    }

    fn place(&mut self, place: usize, slot: SlotId, row: &Row<'_>) {
        let rows = &mut self.rows;
        rows.slots[place] = signed(slot.0);
        let pages = place * self.pages_per_sequence;
        row.lease.write_row(&mut rows.page_table[pages..pages + self.pages_per_sequence]);
        rows.words[place * WORDS..(place + 1) * WORDS].copy_from_slice(&row.sampling.words);
        rows.reals[place * REALS..(place + 1) * REALS].copy_from_slice(&row.sampling.reals);
        rows.logprobs |= row.logprobs;
    }
}

fn refill(values: &mut Vec<i32>, len: usize, value: i32) {
    values.clear();
    values.resize(len, value);
}

/// Ids, positions and indices fit 31 bits: the ladder and the model are checked for it.
fn signed(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}
