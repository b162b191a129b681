//! f32 rows to int8: symmetric, one scale a row.

use std::ops::AddAssign;

/// Largest code; -128 stays unused, so that the codes are symmetric.
const LARGEST: f32 = 127.0;

/// Sums of squares over converted values: of what the conversion changed them by, and of themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Squares {
    pub(crate) error: f64,
    pub(crate) value: f64,
}

impl AddAssign for Squares {
    fn add_assign(&mut self, other: Self) {
        self.error += other.error;
        self.value += other.value;
    }
}

impl Squares {
    /// Root mean square of the change relative to that of the values; 0 when all are 0.
    pub(crate) fn relative(self) -> f64 {
        if self.value == 0.0 { 0.0 } else { (self.error / self.value).sqrt() }
    }
}

/// What a row's codes are multiplied by: its largest magnitude becomes 127; 1 for a row of zeros. The division may round to
/// 0 where all values are subnormal; those count as zeros.
pub(crate) fn scale(row: &[f32]) -> f32 {
    let scale = row.iter().fold(0.0_f32, |largest, value| largest.max(value.abs())) / LARGEST;
    if scale == 0.0 { 1.0 } else { scale }
}

/// Rounds a row to codes, ties to even.
pub(crate) fn encode(row: &[f32], scale: f32, codes: &mut [u8]) -> Squares {
    let mut squares = Squares::default();
    for (codes, values) in codes.chunks_mut(LANES).zip(row.chunks(LANES)) {
        let (mut error, mut value) = (0.0_f32, 0.0_f32);
        for (code, v) in codes.iter_mut().zip(values) {
            let ratio = v / scale;
            let rounded = ((ratio + SHIFT) - SHIFT).clamp(-LARGEST, LARGEST);
            *code = (rounded as i32 as i8).cast_unsigned();
            error += (ratio - rounded) * (ratio - rounded);
            value += ratio * ratio;
        }
        squares += Squares { error: f64::from(error), value: f64::from(value) };
    }
    let scale = f64::from(scale);
    Squares { error: squares.error * scale * scale, value: squares.value * scale * scale }
}

/// Values whose squares are summed in f32 before they join the sum in f64.
const LANES: usize = 64;
/// `1.5 * 2^23`: what is added to it is rounded to a whole number, ties to even, as long as its magnitude is below `2^22`.
const SHIFT: f32 = 12_582_912.0;

#[cfg(test)]
mod tests;
