mod batch;

use model::ModelConfig;
use stablehlo::{DType, Func, Update, Value};

use crate::arrangement::{Build, share_of};
use crate::arrays::{Arrays, Drawing};
use crate::layers::State;
use crate::sampling::{self, Drawn, REALS, WORDS};
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
    let own = share_of(config, options, mesh)?;
    let build = Build::new(&program, config, &own, options);
    let arrays = Arrays::declare(&program, &own.state(), ladder);
    let inputs = Inputs::declare(&program, ladder, batch);
    let Inputs { tokens, positions, slots, table, .. } = inputs;
    let drawing = inputs.drawing(f, &arrays);
    let cells = [i64::from(batch), i64::from(ladder.window())];

    let mut state = State::new(arrays.of_layers(), Vec::new());
    let drafts = inputs.recent.map(|recent| match config.mtp {
        Some(mtp) if !options.force_drafts => {
            let drawing = &drawing;
            let start = speculate::Start { mtp, ladder, tokens, positions, slots, table, recent, drawing };
            let drafts = speculate::draft(&build, &start, &mut state);
            if let Some(logits) = drafts.logits {
                program.output(Output::DraftLogits, logits);
            }
            drafts.tokens
        }
        _ => program.input(Input::ForcedDrafts, DType::S32, &[batch as usize, ladder.drafts as usize]),
    });
    let column = f.reshape(tokens, &[cells[0], 1]);
    let run = drafts.map_or(column, |drafts| f.concatenate(&[column, drafts], 1));
    let offsets = f.iota(DType::S32.tensor(cells), 1);
    let places = f.add(f.broadcast_in_dim(positions, &cells, &[0]), offsets);
    let mut phase = Batch::new(f, ladder, places, slots, table);
    phase.accepted = inputs.recent.map(|recent| recent.accepted);
    let (x, state) = build.layers(&phase, build.embed(f.reshape(run, &[cells[0] * cells[1]])), state);
    let logits = build.logits(f, build.final_norm(f, x), "head");

    let mut results = state.arrays().to_vec();
    let (drawn, counts) = draw(&program, &drawing, cells, logits, drafts);
    if let Some(mtp) = config.mtp {
        let hidden = f.convert(draft::reads(&build, f, mtp, x), DType::F32);
        let hidden = f.reshape(hidden, &[cells[0], cells[1], f.dim(hidden, 1)]);
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

/// What the caller says of each of the B sequences.
#[derive(Clone, Copy)]
struct Inputs {
    tokens: Value,
    positions: Value,
    slots: Value,
    table: Value,
    words: Value,
    reals: Value,
    recent: Option<Recent>,
}

impl Inputs {
    fn declare(program: &Assembly, ladder: &ShapeLadder, batch: u32) -> Self {
        let rows = batch as usize;
        let per_row = |what| program.input(what, DType::S32, &[rows]);
        let pages = ladder.pages_per_sequence() as usize;
        Self {
            tokens: per_row(Input::Tokens),
            positions: per_row(Input::Positions),
            slots: per_row(Input::Slots),
            table: program.input(Input::PageTable, DType::S32, &[rows, pages]),
            words: program.input(Input::SampleWords, DType::U32, &[rows, WORDS]),
            reals: program.input(Input::SampleReals, DType::F32, &[rows, REALS]),
            recent: (ladder.drafts > 0).then(|| Recent {
                accepted: per_row(Input::Accepted),
                tokens: program.input(Input::Recent, DType::S32, &[rows, ladder.window() as usize]),
            }),
        }
    }

    /// How the token after the consumed one is drawn.
    fn drawing<'a>(&self, f: &Func, arrays: &'a Arrays) -> Drawing<'a> {
        let positions = f.add_scalar(self.positions, 1.0);
        Drawing { positions, slots: self.slots, words: self.words, reals: self.reals, arrays }
    }
}

/// Draws from logits `[B * T, V]` of `cells = [B, T]`: one token a sequence, or a window's as far as its drafts are met.
/// Gives what was drawn and the counts of outputs after it.
fn draw(
    program: &Assembly,
    drawing: &Drawing<'_>,
    cells: [i64; 2],
    logits: Value,
    drafts: Option<Value>,
) -> (Drawn, Value) {
    let f = program.f();
    let Some(drafts) = drafts else {
        let counts = drawing.arrays.get(StateArray::OutputCounts);
        let drawn = sampling::emit(f, &drawing.rows(logits, counts));
        let counts = sampling::count(f, counts, drawing.slots, drawn.tokens);
        return (drawn, counts);
    };
    let wide = f.reshape(logits, &[cells[0], cells[1], f.dim(logits, 1)]);
    let (drawn, accepted, counts) = speculate::draw(f, drawing, wide, drafts);
    program.output(Output::Accepted, accepted);
    (drawn, counts)
}
