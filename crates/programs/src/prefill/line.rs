use model::ModelConfig;
use stablehlo::DType;

use super::Chunk;
use crate::arrangement::{Build, share_of};
use crate::layers::State;
use crate::{Assembly, Error, Input, Mesh, Options, Program, ShapeLadder, StateArray, draft};

/// The draft layer's line of a sequence's last token, which takes the token after it: what a prompt that goes on from a
/// checkpoint writes first, as the state at a checkpoint is without that line.
///
/// Inputs: `Tokens` `[1]` (the token after), `Start` (position of the last token), `Slot`, `PageTable` `[P]`.
///
/// # Errors
/// When the ladder can not be built for, or the model has no draft layer.
pub fn draft_line(
    config: &ModelConfig,
    ladder: &ShapeLadder,
    options: &Options,
    mesh: &Mesh,
) -> Result<Program, Error> {
    ladder.check_for(&config.state())?;
    if config.mtp.is_none() {
        return Err(Error::Ladder { field: "drafts", reason: "the model has no draft layer".to_owned() });
    }
    let program = Assembly::new("draft_line", mesh);
    let f = program.f();
    let own = share_of(config, options, mesh)?;
    let shape = own.state();
    let build = Build::new(&program, config, &own, options);
    let lines = [StateArray::Latents, StateArray::IndexKeys, StateArray::IndexRing];
    let lines = lines.into_iter().filter(|array| *array == StateArray::Latents || shape.index.is_some());
    let arrays: Vec<_> = lines.map(|array| (array, program.state(array, &shape, ladder))).collect();
    let held = program.read_state(StateArray::Hidden, &shape, ladder);
    let next = program.input(Input::Tokens, DType::S32, &[1]);
    let start = program.input(Input::Start, DType::S32, &[]);
    let slot = program.input(Input::Slot, DType::S32, &[]);
    let table = program.input(Input::PageTable, DType::S32, &[ladder.pages_per_sequence() as usize]);

    let width = f.dim(held, 2);
    let zero = f.scalar(0i32);
    let hidden = f.dynamic_slice(held, &[slot, zero, zero], &[1, 1, width]);
    let hidden = f.convert(f.reshape(hidden, &[1, width]), build.dtype());
    let phase = Chunk::new(f, ladder, 1, [f.scalar(1i32), start, slot], table);
    let mut state = State::new(arrays, Vec::new());
    let line = draft::project(&build, f, next, hidden, phase.positions);
    draft::cache(&build, f, &phase, line, &mut state);
    for (array, value) in state.arrays() {
        program.state_result(*array, *value);
    }
    program.finish()
}
