//! The part of a program that draws tokens.
//!
//! What costs a pass over the vocabulary beyond finding the largest logit stands behind an `if` on whether any row asks
//! for it, and inside the branch a row that does not ask keeps its values bit for bit, so that it never notices its mates.

use stablehlo::{DType, Func, Reducer, Update, Value};

use super::noise;
use super::row::{asks, real, word};
use super::{MAX_LOGPROBS, REALS, WORDS};

mod limit;

/// What a draw reads. B rows, V tokens, S slots with the trash slot.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    /// f32 `[B, V]`, as the model gives them.
    pub logits: Value,
    /// s32 `[B]`: position of the token to be drawn.
    pub positions: Value,
    /// s32 `[B]`: each row's slot.
    pub slots: Value,
    /// u32 `[B, WORDS]`, packed by [`super::SampleRow`].
    pub words: Value,
    /// f32 `[B, REALS]`.
    pub reals: Value,
    /// s32 `[S, V]`: how often the output holds each token.
    pub counts: Value,
    /// pred `[S, V]`: which tokens the prompt holds.
    pub seen: Value,
    /// f32 `[S, V]`: added to the logits.
    pub bias: Value,
}

/// What a draw gives.
#[derive(Debug, Clone, Copy)]
pub struct Drawn {
    /// s32 `[B]`: the tokens; -1 where the logits hold NaN or infinity, which only a corrupted state makes.
    pub tokens: Value,
    /// f32 `[B]`: log-probability of the token under the model's own logits; 0 where the row does not ask.
    pub chosen_logprob: Value,
    /// s32 `[B, 20]`: the likeliest tokens, the lowest id first among equals; -1 where the row does not ask and beyond
    /// a vocabulary of fewer.
    pub top_ids: Value,
    /// f32 `[B, 20]`: their log-probabilities; 0 where there is no token.
    pub top_logprobs: Value,
}

/// Draws one token a row.
#[track_caller]
pub fn emit(f: &Func, rows: &Rows) -> Drawn {
    let _scope = f.scope("sampling");
    let columns = Columns::of(f, rows);
    let logits = adjust(f, rows, &columns);
    // Not every device lets NaN through a maximum; infinity it must.
    let alarm = f.splat_like(logits, f64::INFINITY);
    let peak = f.reduce_max(f.select(f.is_finite(logits), logits, alarm), &[1]);
    let scores = race(f, rows, &columns, logits, peak);
    let first = first_of(f, scores, f.reduce_max(scores, &[1]));
    let tokens = f.select(f.is_finite(peak), first, f.splat_like(first, -1.0));
    let (chosen_logprob, top_ids, top_logprobs) = logprobs(f, rows, &columns, tokens);
    Drawn { tokens, chosen_logprob, top_ids, top_logprobs }
}

/// `counts` with one more of each row's token in its slot. Tokens of -1 count nowhere.
#[track_caller]
pub fn count(f: &Func, counts: Value, slots: Value, tokens: Value) -> Value {
    let rows = f.dim(tokens, 0);
    let column = |value: Value| f.reshape(value, &[rows, 1]);
    let places = f.concatenate(&[column(slots), column(tokens)], 1);
    f.scatter_at(counts, places, f.splat(1i32, &[rows]), Update::Combine(Reducer::Add))
}

/// The packed rows, column by column.
struct Columns {
    words: [Value; WORDS],
    reals: [Value; REALS],
}

impl Columns {
    fn of(f: &Func, rows: &Rows) -> Self {
        let batch = f.dim(rows.slots, 0);
        let column =
            |matrix, at: usize| f.reshape(f.slice_axis(matrix, 1, at as i64, at as i64 + 1), &[batch]);
        Self {
            words: std::array::from_fn(|at| column(rows.words, at)),
            reals: std::array::from_fn(|at| column(rows.reals, at)),
        }
    }

    /// pred `[B]`: whether each row asks for any of `bits`.
    fn ask(&self, f: &Func, bits: u32) -> Value {
        let asked = self.words[word::ASKS];
        let asked = f.and(asked, f.splat(bits, &f.dims(asked)));
        f.ne(asked, f.splat_like(asked, 0.0))
    }

    /// pred `[B]`: whether each row draws by chance.
    fn by_chance(&self, f: &Func) -> Value {
        let temperature = self.reals[real::TEMPERATURE];
        f.gt(temperature, f.splat_like(temperature, 0.0))
    }
}

/// A value a row, as a matrix like `like`.
fn spread(f: &Func, row: Value, like: Value) -> Value {
    f.broadcast_like(row, like, &[0])
}

/// Whether any row's flag is set, as a scalar. As a maximum of floats, because compilers spend far longer on reductions of
/// booleans and integers than on those of floats.
fn any(f: &Func, flags: Value) -> Value {
    let set = f.reduce_max(f.convert(flags, DType::F32), &[0]);
    f.gt(set, f.splat_like(set, 0.0))
}

/// s32 `[B]`: the first column of `matrix` that holds the row's `value`; the number of columns if none does.
fn first_of(f: &Func, matrix: Value, value: Value) -> Value {
    // Floats count every vocabulary exactly, and are cheaper to reduce.
    let places = f.iota(f.ty(matrix), 1);
    let nowhere = f.splat_like(places, f.dim(matrix, 1) as f64);
    let places = f.select(f.eq(matrix, spread(f, value, matrix)), places, nowhere);
    f.convert(f.reduce_min(places, &[1]), DType::S32)
}

/// The logits after bias and penalties.
fn adjust(f: &Func, rows: &Rows, columns: &Columns) -> Value {
    let adjusted = f.if_else(
        any(f, columns.ask(f, asks::BIAS | asks::PENALTIES)),
        |f| {
            let bias = f.add(rows.logits, f.take_rows(rows.bias, rows.slots));
            let asked = spread(f, columns.ask(f, asks::BIAS), rows.logits);
            let logits = f.select(asked, bias, rows.logits);
            let asked = spread(f, columns.ask(f, asks::PENALTIES), logits);
            vec![f.select(asked, penalise(f, rows, columns, logits), logits)]
        },
        |_| vec![rows.logits],
    );
    adjusted[0]
}

fn penalise(f: &Func, rows: &Rows, columns: &Columns, logits: Value) -> Value {
    let real = |at: usize| spread(f, columns.reals[at], logits);
    let counts = f.take_rows(rows.counts, rows.slots);
    let in_output = f.gt(counts, f.splat_like(counts, 0.0));
    let in_text = f.or(in_output, f.take_rows(rows.seen, rows.slots));
    let repetition = real(real::REPETITION);
    let positive = f.gt(logits, f.splat_like(logits, 0.0));
    let repeated = f.select(positive, f.div(logits, repetition), f.mul(logits, repetition));
    let logits = f.select(in_text, repeated, logits);
    let frequency = f.mul(real(real::FREQUENCY), f.convert(counts, DType::F32));
    let presence = f.mul(real(real::PRESENCE), f.convert(in_output, DType::F32));
    f.sub(f.sub(logits, frequency), presence)
}

/// f32 `[B, V]` whose largest entry is the drawn token: the logits of a greedy row, else each kept token's weight over
/// its exponential variate, and -1 for the others.
fn race(f: &Func, rows: &Rows, columns: &Columns, logits: Value, peak: Value) -> Value {
    let scores = f.if_else(
        any(f, columns.by_chance(f)),
        |f| {
            let by_chance = columns.by_chance(f);
            let temperature = columns.reals[real::TEMPERATURE];
            let divisor = f.select(by_chance, temperature, f.splat_like(temperature, 1.0));
            let below = f.sub(logits, spread(f, peak, logits));
            let weights = f.exp(f.div(below, spread(f, divisor, below)));
            let kept = limit::kept(f, columns, logits, weights);
            let seed = [columns.words[word::SEED_LOW], columns.words[word::SEED_HIGH]];
            let variates = noise::exponential(f, seed, rows.positions, f.dim(logits, 1));
            let raced = f.select(kept, f.div(weights, variates), f.splat_like(weights, -1.0));
            vec![f.select(spread(f, by_chance, raced), raced, logits)]
        },
        |_| vec![logits],
    );
    scores[0]
}

/// Log-probabilities under the model's own logits: of `tokens` `[B]`, and the likeliest ids with theirs `[B, 20]`.
fn logprobs(f: &Func, rows: &Rows, columns: &Columns, tokens: Value) -> (Value, Value, Value) {
    let (batch, vocabulary) = (f.dim(rows.logits, 0), f.dim(rows.logits, 1));
    let width = i64::from(MAX_LOGPROBS);
    let nothing = |f: &Func| {
        vec![f.splat(0f32, &[batch]), f.splat(-1i32, &[batch, width]), f.splat(0f32, &[batch, width])]
    };
    let found = f.if_else(
        any(f, columns.ask(f, asks::LOGPROBS)),
        |f| {
            let peak = f.reduce_max(rows.logits, &[1]);
            let sum = f.sum(f.exp(f.sub(rows.logits, spread(f, peak, rows.logits))), &[1]);
            let total = f.add(peak, f.log(sum));
            let places = f.iota(DType::S32.tensor([batch, vocabulary]), 1);
            let chosen = f.eq(places, spread(f, tokens, places));
            let chosen = f.select(chosen, rows.logits, f.splat_like(rows.logits, 0.0));
            let chosen = f.sub(f.sum(chosen, &[1]), total);
            let (top, ids) = f.top_k(rows.logits, width.min(vocabulary));
            let top = f.sub(top, spread(f, total, top));
            let pad = |value, with| f.pad(value, with, &[0, 0], &[0, width - width.min(vocabulary)], &[0, 0]);
            let found = [chosen, pad(ids, f.scalar(-1i32)), pad(top, f.scalar(0f32))];
            let asked = columns.ask(f, asks::LOGPROBS);
            let keep = |(found, nothing)| f.select(spread(f, asked, found), found, nothing);
            found.into_iter().zip(nothing(f)).map(keep).collect()
        },
        nothing,
    );
    (found[0], found[1], found[2])
}

#[cfg(test)]
mod tests;
