//! Drafting, and drawing a window's tokens one after another until one differs from its draft.

use model::Mtp;
use stablehlo::{DType, Func, Value};

use crate::arrangement::Build;
use crate::arrays::Drawing;
use crate::decode::{Batch, Sharing};
use crate::layers::State;
use crate::layers::indexer::Chosen;
use crate::sampling::{self, Drawn, MAX_LOGPROBS};
use crate::{ShapeLadder, StateArray, draft};

/// What the caller says of each sequence's last window.
#[derive(Clone, Copy)]
pub(crate) struct Recent {
    /// s32 `[B]`: tokens of it that count.
    pub(crate) accepted: Value,
    /// s32 `[B, T]`: those tokens.
    pub(crate) tokens: Value,
}

/// What a step drafts from.
pub(crate) struct Start<'a> {
    pub(crate) mtp: Mtp,
    pub(crate) ladder: &'a ShapeLadder,
    /// s32 `[B]`: token being consumed, and its position.
    pub(crate) tokens: Value,
    pub(crate) positions: Value,
    pub(crate) slots: Value,
    pub(crate) table: Value,
    pub(crate) recent: Recent,
    pub(crate) drawing: &'a Drawing<'a>,
}

/// What a step drafts.
pub(crate) struct Drafts {
    /// s32 `[B, T - 1]`.
    pub(crate) tokens: Value,
    /// f32 `[B, T - 1, V]`: the logits they were drawn from, where the program shows logits.
    pub(crate) logits: Option<Value>,
}

/// Drafts the tokens of a window, each by the draw that the model itself will make at its position.
///
/// First the draft layer's cache takes up what the last window accepted, from the model's own hidden vectors; then every
/// draft extends it by a line of its own, which the next step's acceptance overwrites.
pub(crate) fn draft(build: &Build<'_>, start: &Start<'_>, state: &mut State) -> Drafts {
    let f = build.program.f();
    let (batch, window) = (f.dim(start.tokens, 0), i64::from(start.ladder.window()));
    let counted = f.max(start.recent.accepted, f.splat_like(start.recent.accepted, 1.0));
    let held = f.take_rows(start.drawing.arrays.get(StateArray::Hidden), start.slots);
    let held = f.convert(held, build.dtype());
    catch_up(build, start, counted, held, state);

    let last = f.reshape(f.add_scalar(counted, -1.0), &[batch, 1]);
    let row = f.iota(DType::S32.tensor([batch, 1]), 0);
    let hidden = f.take_at(held, f.concatenate(&[row, last], 1));
    let drafts = f.splat(0i32, &[batch, window - 1]);
    let mut init = vec![start.tokens, hidden, drafts];
    if build.options.emit_logits {
        init.push(f.splat(0f32, &[batch, window - 1, build.config.vocabulary as i64]));
    }
    let own = init.len();
    init.extend(shared(build, start, batch));
    let rest = init.len();
    init.extend(state.values());
    let carried = f.repeat((window - 1) as i32, &init, |f, turn, carried| {
        let (tokens, hidden, drafts) = (carried[0], carried[1], carried[2]);
        let mut state = state.carried(&carried[rest..]);
        let turns = f.broadcast_like(turn, tokens, &[]);
        let lines = f.add_scalar(f.add(start.positions, turns), -1.0);
        let x = draft::project(build, f, tokens, hidden, lines);
        let mut phase = Batch::new(f, start.ladder, f.reshape(lines, &[batch, 1]), start.slots, start.table);
        if let [pools, seen] = carried[own..rest] {
            phase = phase.sharing(Sharing::new(f.eq(turn, f.scalar(0i32)), Chosen { pools, seen }));
        }
        let [hidden, normed] = draft::block(build, f, start.mtp, &phase, x, &mut state);
        let logits = draft::logits(build, f, normed);
        let positions = f.add(start.drawing.positions, turns);
        let drawing = Drawing { positions, ..*start.drawing };
        let rows = drawing.rows(logits, start.drawing.arrays.get(StateArray::OutputCounts));
        let drawn = sampling::emit(f, &rows).tokens;
        let drafts = f.dynamic_update_index(drafts, drawn, 1, turn);
        let shown = carried[3..own].iter().map(|&all| f.dynamic_update_index(all, logits, 1, turn));
        let shared = phase.chosen().into_iter().flat_map(|chosen| chosen.values());
        [drawn, hidden, drafts].into_iter().chain(shown).chain(shared).chain(state.values()).collect()
    });
    *state = state.carried(&carried[rest..]);
    Drafts { tokens: carried[2], logits: carried[3..own].first().copied() }
}

/// Room for the choice of pools that the drafts of a step have in common, where the model shares it.
fn shared(build: &Build<'_>, start: &Start<'_>, batch: i64) -> Vec<Value> {
    match &build.config.mla.indexer {
        Some(shape) if start.mtp.share_index => {
            let ladder = start.ladder;
            let tokens = i64::from(ladder.pages_per_sequence()) * i64::from(ladder.page_tokens);
            let none = Chosen::none(build.program.f(), shape, batch, tokens / shape.pool as i64);
            none.values().to_vec()
        }
        _ => Vec::new(),
    }
}

/// Writes the draft layer's lines of what the last window accepted, but for the newest one.
fn catch_up(build: &Build<'_>, start: &Start<'_>, counted: Value, held: Value, state: &mut State) {
    let f = build.program.f();
    let (batch, window) = (f.dim(start.tokens, 0), i64::from(start.ladder.window()));
    let cells = [batch, window];
    let place = f.iota(DType::S32.tensor(cells), 1);
    let wide = |x: Value| f.broadcast_in_dim(x, &cells, &[0]);
    let first = f.sub(start.positions, counted);
    let lines = f.add(wide(first), place);
    let known = f.lt(place, wide(f.add_scalar(counted, -1.0)));
    let flat = |x: Value| f.reshape(x, &[batch * window]);
    let hidden = f.reshape(held, &[batch * window, f.dim(held, 2)]);
    // Rows that do not count may hold anything.
    let kept = f.broadcast_like(flat(known), hidden, &[0]);
    let hidden = f.select(kept, hidden, f.splat_like(hidden, 0.0));
    let x = draft::project(build, f, flat(start.recent.tokens), hidden, flat(lines));
    let phase = Batch::new(f, start.ladder, lines, start.slots, start.table).only(f, known);
    draft::cache(build, f, &phase, x, state);
}

/// Draws the tokens of windows `logits [B, T, V]` one after another, each with the counts of those before it. A window's
/// tokens count up to and including the first that differs from its draft in `drafts [B, T - 1]`.
///
/// Gives what was drawn as rows `[B * T]`, how many count, and the counts of outputs after them.
pub(crate) fn draw(f: &Func, drawing: &Drawing<'_>, logits: Value, drafts: Value) -> (Drawn, Value, Value) {
    let (batch, window) = (f.dim(logits, 0), f.dim(logits, 1));
    let cells = [batch, window];
    let tops = [batch, window, MAX_LOGPROBS as i64];
    let drafts = f.pad(drafts, f.scalar(-1i32), &[0, 0], &[0, 1], &[0, 0]);
    let init = [
        drawing.arrays.get(StateArray::OutputCounts),
        f.splat(true, &[batch]),
        f.splat(0i32, &[batch]),
        f.splat(0i32, &cells),
        f.splat(0f32, &cells),
        f.splat(0i32, &tops),
        f.splat(0f32, &tops),
    ];
    let carried = f.repeat(window as i32, &init, |f, turn, carried| {
        let (counts, alive, accepted) = (carried[0], carried[1], carried[2]);
        let positions = f.add(drawing.positions, f.broadcast_like(turn, drawing.positions, &[]));
        let drawing = Drawing { positions, ..*drawing };
        let drawn = sampling::emit(f, &drawing.rows(f.dynamic_index(logits, 1, turn), counts));
        let token = drawn.tokens;
        let counted = f.select(alive, token, f.splat_like(token, -1.0));
        let counts = sampling::count(f, counts, drawing.slots, counted);
        let accepted = f.add(accepted, f.convert(alive, DType::S32));
        let met = f.eq(token, f.dynamic_index(drafts, 1, turn));
        let met = f.and(met, f.ge(token, f.splat_like(token, 0.0)));
        let kept = [token, drawn.chosen_logprob, drawn.top_ids, drawn.top_logprobs];
        let kept =
            kept.iter().zip(&carried[3..]).map(|(&one, &all)| f.dynamic_update_index(all, one, 1, turn));
        [counts, f.and(alive, met), accepted].into_iter().chain(kept).collect()
    });
    let rows = batch * window;
    let drawn = Drawn {
        tokens: f.reshape(carried[3], &[rows]),
        chosen_logprob: f.reshape(carried[4], &[rows]),
        top_ids: f.reshape(carried[5], &[rows, tops[2]]),
        top_logprobs: f.reshape(carried[6], &[rows, tops[2]]),
    };
    (drawn, carried[2], carried[0])
}
