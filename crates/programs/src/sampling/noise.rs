//! Noise that is a function of what it is for: seed, position and token id, by the counter-based generator threefry2x32
//! with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).

use stablehlo::{DType, Func, Value};

/// Rotation distances of eight consecutive rounds.
const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
/// Parity constant of the key schedule.
const PARITY: u32 = 0x1BD1_1BDA;
/// Groups of four rounds, each followed by an injection of the key.
const GROUPS: u32 = 5;

/// Both words of threefry2x32-20; `key` and `counter` are pairs of u32 values of one shape.
pub(super) fn threefry(f: &Func, key: [Value; 2], counter: [Value; 2]) -> [Value; 2] {
    let parity = f.splat(PARITY, &f.dims(key[0]));
    let schedule = [key[0], key[1], f.xor(f.xor(key[0], key[1]), parity)];
    let mut x = [f.add(counter[0], key[0]), f.add(counter[1], key[1])];
    for group in 0..GROUPS {
        for distance in ROTATIONS[group as usize % 2] {
            x[0] = f.add(x[0], x[1]);
            x[1] = f.xor(rotate(f, x[1], distance), x[0]);
        }
        let at = group as usize + 1;
        x[0] = f.add(x[0], schedule[at % 3]);
        x[1] = f.add_scalar(f.add(x[1], schedule[(at + 1) % 3]), f64::from(group + 1));
    }
    x
}

fn rotate(f: &Func, x: Value, distance: u32) -> Value {
    let left = f.shift_left(x, f.splat_like(x, f64::from(distance)));
    let right = f.shift_right_logical(x, f.splat_like(x, f64::from(32 - distance)));
    f.or(left, right)
}

/// Exponential variates of mean 1, f32 `[B, V]`: entry (b, v) belongs to seed b, position b and token id v.
///
/// The token with the largest p / variate is drawn with probability p: the same race as p's logarithm plus Gumbel noise
/// (-log of the variate), with one logarithm less. `seed` is a pair of u32 `[B]`, `positions` s32 `[B]`.
pub(super) fn exponential(f: &Func, seed: [Value; 2], positions: Value, vocabulary: i64) -> Value {
    let dims = [f.dim(positions, 0), vocabulary];
    let spread = |row: Value| f.broadcast_in_dim(row, &dims, &[0]);
    let positions = spread(f.convert(positions, DType::U32));
    let tokens = f.iota(DType::U32.tensor(dims), 1);
    let [bits, _] = threefry(f, seed.map(spread), [positions, tokens]);
    // Halves keep the fraction off 0, the bound keeps its rounding off 1; near 0, where small variates that win come
    // from, it is as fine as the bits are.
    let fraction = f.mul_scalar(f.add_scalar(f.convert(bits, DType::F32), 0.5), 2f64.powi(-32));
    let fraction = f.min(fraction, f.splat_like(fraction, 1.0 - 2f64.powi(-24)));
    f.neg(f.log1p(f.neg(fraction)))
}

#[cfg(test)]
pub(super) mod reference;
#[cfg(test)]
mod tests;
