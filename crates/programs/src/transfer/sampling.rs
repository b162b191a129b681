use model::StateShape;
use stablehlo::DType;

use crate::{Assembly, Error, Input, Mesh, Program, ShapeLadder, StateArray};

/// Writes what a slot's draws read: prompt tokens, output counts, logit biases. Inputs: `Slot`, `SlotSeen`, `SlotCounts`,
/// `SlotBias`. Needed before the first draw of a sequence whose sampling
/// [asks for it](crate::sampling::Sampling::needs_slot_rows); the rows of others are never read.
///
/// # Errors
/// A ladder that cannot be.
pub fn set_sampling(state: &StateShape, ladder: &ShapeLadder, mesh: &Mesh) -> Result<Program, Error> {
    ladder.check_for(state)?;
    let assembly = Assembly::new("set_sampling", mesh);
    let rows = [
        (StateArray::PromptSeen, Input::SlotSeen, DType::Pred),
        (StateArray::OutputCounts, Input::SlotCounts, DType::S32),
        (StateArray::LogitBias, Input::SlotBias, DType::F32),
    ];
    let arrays = rows.map(|(what, _, _)| assembly.state(what, state, ladder));
    let slot = assembly.input(Input::Slot, DType::S32, &[]);
    let new = rows.map(|(_, input, dtype)| assembly.input(input, dtype, &[state.vocabulary]));
    for (((what, _, _), array), row) in rows.into_iter().zip(arrays).zip(new) {
        assembly.state_result(what, assembly.f().dynamic_update_index(array, row, 0, slot));
    }
    assembly.finish()
}
