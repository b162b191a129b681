//! The state arrays as arguments and results of a prefill or decode program, and what drawing reads of them.

use model::StateShape;
use stablehlo::Value;

use crate::{Assembly, ShapeLadder, StateArray, sampling};

/// The state arrays of a program, declared.
pub(crate) struct Arrays(Vec<(StateArray, Value)>);

impl Arrays {
    /// Declares all arrays the model has: those that layers or counts change are given back.
    pub(crate) fn declare(program: &Assembly, shape: &StateShape, ladder: &ShapeLadder) -> Self {
        let declare = |array| match array {
            StateArray::PromptSeen | StateArray::LogitBias => program.read_state(array, shape, ladder),
            _ => program.state(array, shape, ladder),
        };
        Self(StateArray::of(shape, ladder).into_iter().map(|array| (array, declare(array))).collect())
    }

    /// An array before the program has run. Asking for one that the model does not have shows as an ill-typed operation.
    pub(crate) fn get(&self, what: StateArray) -> Value {
        let place = self.0.iter().position(|(array, _)| *array == what);
        self.0[place.unwrap_or(0)].1
    }

    /// The arrays that layers thread through.
    pub(crate) fn of_layers(&self) -> Vec<(StateArray, Value)> {
        self.0.iter().filter(|(array, _)| array.is_of_layers()).copied().collect()
    }

    /// Gives back what was declared to be given back: the last of `results` for an array, or the array as it was.
    pub(crate) fn give_back(&self, program: &Assembly, results: &[(StateArray, Value)]) {
        for (array, before) in &self.0 {
            if matches!(array, StateArray::PromptSeen | StateArray::LogitBias) {
                continue;
            }
            let after = results.iter().rfind(|(what, _)| what == array).map_or(*before, |(_, value)| *value);
            program.state_result(*array, after);
        }
    }
}

/// What draws have in common within a program.
pub(crate) struct Drawing<'a> {
    /// s32 `[rows]`: position of the token to be drawn.
    pub(crate) positions: Value,
    pub(crate) slots: Value,
    pub(crate) words: Value,
    pub(crate) reals: Value,
    pub(crate) arrays: &'a Arrays,
}

impl Drawing<'_> {
    /// A draw from logits `[rows, vocabulary]` with the counts as they are.
    pub(crate) fn rows(&self, logits: Value, counts: Value) -> sampling::Rows {
        sampling::Rows {
            logits,
            positions: self.positions,
            slots: self.slots,
            words: self.words,
            reals: self.reals,
            counts,
            seen: self.arrays.get(StateArray::PromptSeen),
            bias: self.arrays.get(StateArray::LogitBias),
        }
    }
}
