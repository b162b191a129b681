use std::fmt;
use std::ops::Range;

/// How a stack of layers is arranged as code: some inline, one repeated group as a loop, some inline.
///
/// Layers `0..prefix` come first, then `repeats` times the same group of `period` layers, then the rest. A program
/// holds `prefix + period + suffix` bodies, however deep the model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fold {
    /// Layers before the repeated group.
    pub prefix: usize,
    /// Layers in one repetition; 0 when nothing repeats.
    pub period: usize,
    /// How often the group occurs; 0 when nothing repeats.
    pub repeats: usize,
    /// Layers after the repeated group.
    pub suffix: usize,
}

/// Where the code of a layer stands in a folded program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The layer of this index has a body of its own.
    Inline(usize),
    /// Member of the repeated group; its weights are stacked over the repetitions.
    Repeated(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(layer) => write!(out, "layers.{layer}"),
            Self::Repeated(member) => write!(out, "group.{member}"),
        }
    }
}

impl Fold {
    /// The layers that one body runs, in order of repetition.
    #[must_use]
    pub fn layers_at(&self, place: Place) -> Vec<usize> {
        match place {
            Place::Inline(layer) => vec![layer],
            Place::Repeated(member) => {
                (0..self.repeats).map(|r| self.prefix + r * self.period + member).collect()
            }
        }
    }

    /// The bodies of a folded program in the order they first run.
    pub fn places(&self) -> impl Iterator<Item = Place> + use<> {
        let group = (0..self.period).map(Place::Repeated);
        (0..self.prefix).map(Place::Inline).chain(group).chain(self.suffix_layers().map(Place::Inline))
    }

    /// Indices of the layers after the repeated group.
    #[must_use]
    pub fn suffix_layers(&self) -> Range<usize> {
        let start = self.prefix + self.period * self.repeats;
        start..start + self.suffix
    }
}

/// Finds the arrangement with the fewest bodies; among equals the one that loops over the most layers.
#[must_use]
pub fn fold<T: PartialEq>(layers: &[T]) -> Fold {
    let n = layers.len();
    let mut best = Fold { prefix: n, period: 0, repeats: 0, suffix: 0 };
    let mut best_bodies = n;
    for prefix in 0..n {
        for period in 1..=(n - prefix) / 2 {
            let matching = (prefix + period..n).take_while(|&i| layers[i] == layers[i - period]).count();
            let repeats = 1 + matching / period;
            let suffix = n - prefix - period * repeats;
            let bodies = prefix + period + suffix;
            if repeats >= 2 && bodies < best_bodies {
                best = Fold { prefix, period, repeats, suffix };
                best_bodies = bodies;
            }
        }
    }
    best
}

#[cfg(test)]
mod tests;
