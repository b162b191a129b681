mod batch;

use model::ModelConfig;
use stablehlo::{DType, Update};

use crate::arrangement::{Build, share_of};
use crate::arrays::{Arrays, Drawing};
use crate::layers::State;
use crate::sampling::{self, REALS, WORDS};
use crate::speculate::{self, Recent};
use crate::{Assembly, Error, Input, Mesh, Options, Output, Program, ShapeLadder, StateArray, draft};
pub(crate) use batch::{Batch, Sharing};

/// One step of each of `batch` sequences: extends their latents, moves their recurrent states, draws the next tokens.
///
/// With drafts in the ladder a step takes in what the last one accepted, drafts, runs the consumed token and its drafts
/// as one window, and draws until a token differs from its draft; how many count is data. The window's own tokens reach
/// the recurrent state in the next step, when it is known how many of them count.
///
/// Rows never meet: what a row draws depends on its own slot and pages alone.
///
/// # Errors
/// When the ladder can not be built for.
pub fn decode(
    config: &ModelConfig,
    ladder: &ShapeLadder,
    batch: u32,
    options: &Options,
    mesh: &Mesh,
) -> Result<Program, Error> {
    ladder.check_for(&config.state())?;
    let program = Assembly::new(&format!("decode_{batch}"), mesh);
    let f = program.f();
    let (rows, window) = (i64::from(batch), i64::from(ladder.window()));
    let own = share_of(config, options, mesh)?;
    let shape = own.state();
    let build = Build::new(&program, config, &own, options);
    let arrays = Arrays::declare(&program, &shape, ladder);
    let per_row = |what| program.input(what, DType::S32, &[batch as usize]);
    let (tokens, positions, slots) =
        (per_row(Input::Tokens), per_row(Input::Positions), per_row(Input::Slots));
    let pages = ladder.pages_per_sequence() as usize;
    let table = program.input(Input::PageTable, DType::S32, &[batch as usize, pages]);
    let words = program.input(Input::SampleWords, DType::U32, &[batch as usize, WORDS]);
    let reals = program.input(Input::SampleReals, DType::F32, &[batch as usize, REALS]);
    let drawing = Drawing { positions: f.add_scalar(positions, 1.0), slots, words, reals, arrays: &arrays };
    let recent = (ladder.drafts > 0).then(|| Recent {
        accepted: per_row(Input::Accepted),
        tokens: program.input(Input::Recent, DType::S32, &[batch as usize, window as usize]),
    });

    let mut state = State::new(arrays.of_layers(), Vec::new());
    let drafts = recent.map(|recent| match config.mtp {
        Some(mtp) if !options.force_drafts => {
            let drawing = &drawing;
            let start = speculate::Start { mtp, ladder, tokens, positions, slots, table, recent, drawing };
            let drafts = speculate::draft(&build, &start, &mut state);
            if let Some(logits) = drafts.logits {
                program.output(Output::DraftLogits, logits);
            }
            drafts.tokens
        }
        _ => program.input(Input::ForcedDrafts, DType::S32, &[batch as usize, window as usize - 1]),
    });
    let column = f.reshape(tokens, &[rows, 1]);
    let cells = [rows, window];
    let run = drafts.map_or(column, |drafts| f.concatenate(&[column, drafts], 1));
    let offsets = f.iota(DType::S32.tensor(cells), 1);
    let places = f.add(f.broadcast_in_dim(positions, &cells, &[0]), offsets);
    let mut phase = Batch::new(f, ladder, places, slots, table);
    phase.accepted = recent.map(|recent| recent.accepted);
    let (x, state) = build.layers(&phase, build.embed(f.reshape(run, &[rows * window])), state);
    let logits = build.logits(f, build.final_norm(f, x), "head");

    let mut results = state.arrays().to_vec();
    let (drawn, counts) = match drafts {
        None => {
            let counts = arrays.get(StateArray::OutputCounts);
            let drawn = sampling::emit(f, &drawing.rows(logits, counts));
            let counts = sampling::count(f, counts, slots, drawn.tokens);
            (drawn, counts)
        }
        Some(drafts) => {
            let wide = f.reshape(logits, &[rows, window, f.dim(logits, 1)]);
            let (drawn, accepted, counts) = speculate::draw(f, &drawing, wide, drafts);
            program.output(Output::Accepted, accepted);
            (drawn, counts)
        }
    };
    if let Some(mtp) = config.mtp {
        let hidden = f.convert(draft::reads(&build, f, mtp, x), DType::F32);
        let hidden = f.reshape(hidden, &[rows, window, f.dim(hidden, 1)]);
        let held = arrays.get(StateArray::Hidden);
        results.push((StateArray::Hidden, f.scatter_rows(held, slots, hidden, Update::Replace)));
    }
    results.push((StateArray::OutputCounts, counts));
    arrays.give_back(&program, &results);
    program.drawn(&drawn);
    if options.emit_logits {
        program.output(Output::Logits, logits);
    }
    program.finish()
}
