#[cfg(test)]
mod tests;

/// Which positions of a sequence are imported: disjoint half-open ranges, ascending, never touching.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage {
    ranges: Vec<(u32, u32)>,
}

impl Coverage {
    /// Adds the positions from `begin` up to `end`.
    pub(crate) fn add(&mut self, begin: u32, end: u32) {
        if begin >= end {
            return;
        }
        let first = self.ranges.partition_point(|range| range.1 < begin);
        let after = self.ranges.partition_point(|range| range.0 <= end);
        let mut merged = (begin, end);
        for range in self.ranges.drain(first..after) {
            merged = (merged.0.min(range.0), merged.1.max(range.1));
        }
        self.ranges.insert(first, merged);
    }

    /// The first position below `end` that is not covered.
    pub(crate) fn missing(&self, end: u32) -> Option<u32> {
        let covered = match self.ranges.first() {
            Some((0, covered)) => *covered,
            Some(_) | None => 0,
        };
        (covered < end).then_some(covered)
    }
}
