use stablehlo::{DType, Func, Value};

use super::{Half, Number};
use crate::layers::Layer;

/// Block attention residuals: the sums over finished blocks of layers, and the running one.
///
/// A half reads a mixture of them: rows are scored by `query . norm(row)` and weighed by softmax; the rows themselves
/// are mixed as they are. Finished sums never change, so the inverse of their length is kept beside them.
pub(super) struct Bank {
    /// `[rows, hidden]`: the running sum.
    running: Value,
    /// `[sums + 1, rows, hidden]`: finished sums; the last place takes what is not to be kept.
    sums: Value,
    /// f32 `[sums + 1, rows]`: `1 / sqrt(mean(sum^2) + eps)`.
    scales: Value,
    /// Layers a sum covers.
    length: usize,
    number: Number,
}

/// The running sum, and room for `count` finished ones.
pub(super) fn start(f: &Func, x: Value, count: usize) -> Vec<Value> {
    let (rows, hidden, places) = (f.dim(x, 0), f.dim(x, 1), count as i64 + 1);
    let sums = f.full(f.dtype(x).tensor([places, rows, hidden]), 0.0);
    vec![x, sums, f.splat(0f32, &[places, rows])]
}

/// How many sums are finished.
enum Finished {
    Fixed(usize),
    Counted(Value),
}

impl Bank {
    pub(super) fn of(values: &[Value], length: usize, number: Number) -> Self {
        Self { running: values[0], sums: values[1], scales: values[2], length, number }
    }

    /// One half of a layer. A layer that begins a block first lays the running sum by.
    pub(super) fn half(
        mut self,
        layer: &Layer<'_>,
        half: Half,
        block: impl FnOnce(Value) -> Value,
    ) -> Vec<Value> {
        let f = layer.f;
        let weights = [layer.weight(&half.role("norm")), layer.weight(&half.role("query"))];
        let eps = layer.config.rms_eps;
        if half == Half::Attention {
            // What is read is read before a sum is laid by: in place, where the compiler would keep a copy of all.
            let mixed = self.mix(f, weights, eps);
            let held = f.optimization_barrier(&[mixed, self.running, self.sums]);
            (self.running, self.sums) = (held[1], held[2]);
            self.lay_by(f, eps);
            self.running = f.add(self.running, block(held[0]));
        } else {
            // The layer's first half has laid by already.
            let read = self.after().mix(f, weights, eps);
            self.running = f.add(self.running, block(read));
        }
        vec![self.running, self.sums, self.scales]
    }

    /// The same sums as seen by the next layer's number.
    fn after(&self) -> Self {
        let number = match self.number {
            Number::Fixed(layer) => Number::Fixed(layer + 1),
            Number::Turning { first, period, turn } => Number::Turning { first: first + 1, period, turn },
        };
        Self { number, ..*self }
    }

    /// Softmax mixture of the finished sums and the running one.
    pub(super) fn mix(&self, f: &Func, weights: [Value; 2], eps: f64) -> Value {
        let query = f.mul(weights[0], weights[1]);
        let running = f.convert(self.running, DType::F32);
        let own = f.mul(score(f, running, query), inverse_length(f, running, eps));
        let finished = self.finished(f);
        let (sums, scales) = match finished {
            Finished::Fixed(0) => return self.running,
            Finished::Fixed(count) => {
                (f.slice_axis(self.sums, 0, 0, count as i64), f.slice_axis(self.scales, 0, 0, count as i64))
            }
            Finished::Counted(_) => (self.sums, self.scales),
        };
        let sums = f.convert(sums, DType::F32);
        let mut scores = f.mul(score(f, sums, query), scales);
        if let Finished::Counted(count) = finished {
            let place = f.iota(DType::S32.tensor(f.dims(scores)), 0);
            let kept = f.lt(place, f.broadcast_like(count, place, &[]));
            scores = f.select(kept, scores, f.splat_like(scores, f64::NEG_INFINITY));
        }
        let peak = f.max(f.reduce_max(scores, &[0]), own);
        let each = f.exp(f.sub(scores, f.broadcast_like(peak, scores, &[1])));
        let own = f.exp(f.sub(own, peak));
        let total = f.add(f.sum(each, &[0]), own);
        let mixed = f.sum(f.mul(sums, f.broadcast_like(each, sums, &[0, 1])), &[0]);
        let mixed = f.add(mixed, f.mul(running, f.broadcast_like(own, running, &[0])));
        f.convert(f.div(mixed, f.broadcast_like(total, mixed, &[0])), f.dtype(self.running))
    }

    /// How many sums layers before this one have finished: one for each block begun.
    fn finished(&self, f: &Func) -> Finished {
        let length = self.length;
        match self.number {
            Number::Fixed(layer) => Finished::Fixed(layer.div_ceil(length)),
            Number::Turning { first, period, turn } => {
                let layer = f.add_scalar(f.mul_scalar(turn, period as f64), (first + length - 1) as f64);
                Finished::Counted(f.div(layer, f.scalar(length as i32)))
            }
        }
    }

    /// Keeps the running sum and clears it, if this layer begins a block.
    fn lay_by(&mut self, f: &Func, eps: f64) {
        let (begins, place) = match self.number {
            Number::Fixed(layer) if !layer.is_multiple_of(self.length) => return,
            Number::Fixed(layer) => (None, f.scalar((layer / self.length) as i32)),
            Number::Turning { first, period, turn } => {
                // Turns that never meet a block's beginning need no code.
                if !first.is_multiple_of(gcd(period, self.length)) {
                    return;
                }
                let layer = f.add_scalar(f.mul_scalar(turn, period as f64), first as f64);
                let length = f.scalar(self.length as i32);
                let begins = f.eq(f.rem(layer, length), f.scalar(0i32));
                let last = f.scalar(f.dim(self.sums, 0) as i32 - 1);
                (Some(begins), f.select(begins, f.div(layer, length), last))
            }
        };
        let scale = inverse_length(f, f.convert(self.running, DType::F32), eps);
        self.sums = f.dynamic_update_index(self.sums, self.running, 0, place);
        self.scales = f.dynamic_update_index(self.scales, scale, 0, place);
        let none = f.splat_like(self.running, 0.0);
        self.running = match begins {
            None => none,
            Some(begins) => f.select(f.broadcast_like(begins, none, &[]), none, self.running),
        };
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// `x [..., hidden] . query [hidden]`.
fn score(f: &Func, x: Value, query: Value) -> Value {
    let last = f.dims(x).len() - 1;
    f.sum(f.mul(x, f.broadcast_like(query, x, &[last])), &[last])
}

/// `1 / sqrt(mean(x^2) + eps)` over the last axis.
fn inverse_length(f: &Func, x: Value, eps: f64) -> Value {
    let last = f.dims(x).len() - 1;
    let width = f.dim(x, last) as f64;
    let squares = f.sum(f.mul(x, x), &[last]);
    f.rsqrt(f.add_scalar(f.mul_scalar(squares, 1.0 / width), eps))
}
