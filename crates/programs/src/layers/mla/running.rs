//! Softmax attention block by block: what is carried from one to the next is a peak, a total and a sum.

use stablehlo::{DType, Dot, Func, Value};

/// Attention over `needed` (s32 scalar) of at most `count` blocks, `[lead..., kv_lora]` as in `dims`. `scores_of` gives a
/// block's scores `[lead..., tokens]`, -inf where hidden, and its latents. Every row sees something in the first block.
///
/// A block in which a row sees nothing changes nothing of the row, to the last bit.
pub(super) fn attend_blocks(
    f: &Func,
    count: i64,
    needed: Value,
    dims: &[i64],
    scores_of: impl FnOnce(&Func, Value) -> (Value, Value),
) -> Value {
    let lead = &dims[..dims.len() - 1];
    let init = Running {
        peak: f.splat(f32::NEG_INFINITY, lead),
        total: f.splat(0f32, lead),
        sum: f.splat(0f32, dims),
    };
    if count == 1 {
        let (scores, latents) = scores_of(f, f.scalar(0i32));
        return init.add(f, scores, latents).result(f);
    }
    let init = [f.scalar(0i32), init.peak, init.total, init.sum];
    let carried = f.while_loop(
        &init,
        |f, carried| f.lt(carried[0], needed),
        |f, carried| {
            let (scores, latents) = scores_of(f, carried[0]);
            let so_far = Running { peak: carried[1], total: carried[2], sum: carried[3] };
            let next = so_far.add(f, scores, latents);
            vec![f.add_scalar(carried[0], 1.0), next.peak, next.total, next.sum]
        },
    );
    Running { peak: carried[1], total: carried[2], sum: carried[3] }.result(f)
}

/// Products in f32, whatever the width of what is multiplied.
pub(super) fn products(f: &Func, a: Value, b: Value, how: &Dot) -> Value {
    f.dot_general(a, f.convert(b, f.dtype(a)), &how.clone().out(DType::F32))
}

/// Latents of tokens outside `kept` become 0: what was never written may be NaN, which no product can mask.
pub(crate) fn keep_rows(f: &Func, latents: Value, kept: Value, axis: usize) -> Value {
    let axes: Vec<usize> = (0..=axis).collect();
    let kept = f.broadcast_like(kept, latents, &axes);
    f.select(kept, latents, f.splat_like(latents, 0.0))
}

pub(crate) fn hide(f: &Func, scores: Value, visible: Value) -> Value {
    f.select(visible, scores, f.splat_like(scores, f64::NEG_INFINITY))
}

/// `weights [lead..., tokens]` times `values [lead..., tokens, width]`, in f32.
fn sums(f: &Func, weights: Value, values: Value) -> Value {
    let rank = f.dims(weights).len();
    let mut how = Dot::contract([rank - 1], [rank - 2]).out(DType::F32);
    how.lhs_batch = (0..rank - 2).collect();
    how.rhs_batch = (0..rank - 2).collect();
    f.dot_general(weights, values, &how)
}

/// A softmax in progress.
struct Running {
    /// Largest score so far.
    peak: Value,
    /// Sum of `exp(score - peak)`.
    total: Value,
    /// Sum of `exp(score - peak)` times compressions.
    sum: Value,
}

impl Running {
    fn add(&self, f: &Func, scores: Value, latents: Value) -> Self {
        let last = f.dims(scores).len() - 1;
        let lead: Vec<usize> = (0..last).collect();
        let peak = f.max(self.peak, f.reduce_max(scores, &[last]));
        let weights = f.exp(f.sub(scores, f.broadcast_like(peak, scores, &lead)));
        let shrink = f.exp(f.sub(self.peak, peak));
        let kept = |old: Value| f.mul(old, f.broadcast_like(shrink, old, &lead));
        let total = f.add(kept(self.total), f.sum(weights, &[last]));
        let values = f.slice_axis(latents, f.dims(latents).len() - 1, 0, f.dim(self.sum, last));
        let narrow = f.convert(weights, f.dtype(values));
        let sum = f.add(kept(self.sum), sums(f, narrow, values));
        Self { peak, total, sum }
    }

    fn result(&self, f: &Func) -> Value {
        let lead: Vec<usize> = (0..f.dims(self.total).len()).collect();
        f.div(self.sum, f.broadcast_like(self.total, self.sum, &lead))
    }
}
