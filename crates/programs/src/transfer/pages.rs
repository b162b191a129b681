use model::StateShape;
use stablehlo::DType;

use crate::{Assembly, Error, Input, Mesh, Program, ShapeLadder, StateArray};

/// Copies a page, latents and index keys of all layers, so that a sequence can write to a page that it shares. Inputs:
/// `FromPage`, `ToPage`.
///
/// # Errors
/// A ladder that cannot be.
pub fn copy_page(state: &StateShape, ladder: &ShapeLadder, mesh: &Mesh) -> Result<Program, Error> {
    ladder.check_for(state)?;
    let assembly = Assembly::new("copy_page", mesh);
    let keys = state.index.map(|_| StateArray::IndexKeys);
    let arrays = [Some(StateArray::Latents), keys].into_iter().flatten();
    let arrays: Vec<_> = arrays.map(|array| (array, assembly.state(array, state, ladder))).collect();
    let [from, to] = [Input::FromPage, Input::ToPage].map(|page| assembly.input(page, DType::S32, &[]));
    let f = assembly.f();
    for (what, array) in arrays {
        let page = f.dynamic_index(array, 1, from);
        assembly.state_result(what, f.dynamic_update_index(array, page, 1, to));
    }
    assembly.finish()
}
