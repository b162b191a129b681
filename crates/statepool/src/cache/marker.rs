use std::num::NonZeroU32;

use prefix::{Chain, Tokens, Units};

use super::Cache;
use crate::Marks;

/// How far before a prompt's end its successors are seen to leave it.
const BEFORE_END: usize = 3;
/// Prompts after which what was learned counts half.
const MEMORY: f64 = 1024.0;
/// Prompts without any saving that are taken as seen at the start, so that the first few do not decide.
const DOUBT: f64 = 32.0;

/// What is known of a prompt that is to be prefilled.
#[derive(Clone, Copy, Debug)]
struct Prompt {
    /// Its last boundary.
    end: Units,
    /// The last one that the same prompt, asked again, can resume at: not its end where that is a boundary.
    usable: Units,
    /// Where it resumes.
    resume: Units,
    /// The last boundary that an earlier prompt had, too.
    leaves: Units,
    /// The last boundary of the latest of those prompts.
    other_end: Units,
    /// Tokens that a checkpoint where it leaves saves, over the nearest before.
    saving: Tokens,
}

/// Chooses boundaries for checkpoints by the rules, and learns the ends' distances.
#[derive(Debug)]
pub(super) struct Marker {
    rules: Marks,
    /// Tokens that a checkpoint i + 1 boundaries before each end had saved.
    saved: [f64; BEFORE_END],
    prompts: f64,
}

impl Marker {
    pub(super) fn new(rules: Marks) -> Self {
        Self { rules, saved: [0.0; BEFORE_END], prompts: 0.0 }
    }

    /// The boundaries where `prompt` should leave checkpoints, ascending: after where it resumes, at most its end.
    fn marks(&mut self, prompt: Prompt) -> Vec<Units> {
        self.learn(prompt);
        let end = prompt.end.0;
        let mut marks: Vec<u32> = Vec::new();
        if self.rules.end {
            marks.extend([end, prompt.usable.0]);
        }
        if self.rules.branches {
            marks.push(prompt.leaves.0);
        }
        marks.extend(self.before_end().map(|distance| end.saturating_sub(distance)));
        if let Some(grid) = self.rules.grid.map(NonZeroU32::get) {
            marks.extend((1..=end / grid).map(|step| step * grid));
        }
        marks.retain(|mark| *mark > prompt.resume.0 && *mark <= end);
        marks.sort_unstable();
        marks.dedup();
        marks.into_iter().map(Units).collect()
    }

    fn learn(&mut self, prompt: Prompt) {
        self.prompts += 1.0;
        let before_end = prompt.other_end.0.saturating_sub(prompt.leaves.0) as usize;
        let slot = before_end.checked_sub(1).and_then(|index| self.saved.get_mut(index));
        if let Some(saved) = slot.filter(|_| prompt.leaves > Units(0)) {
            *saved += f64::from(prompt.saving.0);
        }
        if self.prompts >= MEMORY {
            self.prompts /= 2.0;
            self.saved = self.saved.map(|saved| saved / 2.0);
        }
    }

    /// The distances at which a checkpoint is expected to save enough.
    fn before_end(&self) -> impl Iterator<Item = u32> {
        let least = self.rules.before_end.map_or(f64::INFINITY, |least| f64::from(least.0));
        let prompts = self.prompts + DOUBT;
        (1u32..)
            .zip(self.saved)
            .filter(move |(_, saved)| saved / prompts >= least)
            .map(|(distance, _)| distance)
    }
}

impl<C> Cache<C> {
    /// Where a prompt that resumes at `resume` should leave checkpoints; its boundaries are remembered.
    pub(crate) fn marks(&mut self, chain: &Chain, resume: Units) -> Vec<Tokens> {
        let mut leaves = Units(0);
        let mut other_end = Units(0);
        // Of the latest checkpoint before `leaves`.
        let (mut latest, mut before) = (Units(0), Units(0));
        for (index, boundary) in (1..).zip(chain.boundaries().take(chain.usable().0 as usize)) {
            let node = self.nodes.get(&boundary.hash);
            let passed = self.seen.get(boundary.hash);
            if node.is_none() && passed.is_none() {
                break;
            }
            leaves = Units(index);
            other_end = passed.map_or(leaves, |passed| passed.end);
            before = latest;
            if node.is_some_and(|node| node.kept.is_some()) {
                latest = leaves;
            }
        }
        let unit = self.config.unit;
        let saving = Tokens(unit.position(leaves).0.saturating_sub(unit.position(before).0));
        let end = chain.units();
        for boundary in chain.boundaries() {
            self.seen.note(boundary.hash, |passed| passed.end = end);
        }
        let usable = chain.usable();
        let marks = self.marker.marks(Prompt { end, usable, resume, leaves, other_end, saving });
        let bare = marks.into_iter().filter(|mark| {
            let node = chain.hash(*mark).and_then(|hash| self.nodes.get(&hash));
            node.is_none_or(|node| node.kept.is_none())
        });
        bare.map(|mark| unit.position(mark)).collect()
    }
}
