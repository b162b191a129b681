use std::collections::HashMap;

use prefix::{PrefixHash, Units};

/// Boundaries that prompts had, whether anything of them is cached or not: by hash alone, bounded. The oldest half goes
/// when the younger is full.
#[derive(Debug)]
pub(super) struct Seen {
    half: usize,
    young: HashMap<PrefixHash, Passed>,
    old: HashMap<PrefixHash, Passed>,
}

/// What is remembered of a boundary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Passed {
    /// The last boundary of the latest prompt that had this one.
    pub(super) end: Units,
    /// How often a prompt resumed here.
    pub(super) uses: u32,
}

impl Seen {
    pub(super) fn new(most: usize) -> Self {
        Self { half: most.div_ceil(2).max(1), young: HashMap::new(), old: HashMap::new() }
    }

    pub(super) fn get(&self, hash: PrefixHash) -> Option<Passed> {
        self.young.get(&hash).or_else(|| self.old.get(&hash)).copied()
    }

    /// Changes what is remembered of `hash`, and makes it the latest.
    pub(super) fn note(&mut self, hash: PrefixHash, change: impl FnOnce(&mut Passed)) {
        let former = self.old.remove(&hash);
        change(self.young.entry(hash).or_insert_with(|| former.unwrap_or_default()));
        if self.young.len() >= self.half {
            self.old = std::mem::take(&mut self.young);
        }
    }
}
