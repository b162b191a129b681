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
    // Magnitudes are ordered as their bits are, and only whole numbers are compared many at a time.
    let largest = row.iter().fold(0, |largest: i32, value| largest.max(value.abs().to_bits().cast_signed()));
    let scale = f32::from_bits(largest.cast_unsigned()) / LARGEST;
    if scale == 0.0 { 1.0 } else { scale }
}

/// Rounds a row to codes, ties to even.
pub(crate) fn encode(row: &[f32], scale: f32, codes: &mut [u8]) -> Squares {
    let mut lanes = [[0.0; LANES]; 2];
    let (values, last_values) = row.as_chunks();
    let (wide, last) = codes.as_chunks_mut();
    for (codes, values) in wide.iter_mut().zip(values) {
        chunk(codes, values, scale, &mut lanes);
    }
    let mut padded = [0.0; LANES];
    padded.iter_mut().zip(last_values).for_each(|(padded, value)| *padded = *value);
    let mut few = [0; LANES];
    chunk(&mut few, &padded, scale, &mut lanes);
    last.iter_mut().zip(few).for_each(|(code, few)| *code = few);
    let [error, value] = lanes.map(|lanes| lanes.map(f64::from).iter().sum::<f64>());
    let scale = f64::from(scale);
    Squares { error: error * scale * scale, value: value * scale * scale }
}

/// Values that are converted side by side.
const LANES: usize = 8;
/// `1.5 * 2^23`: what is added to it is rounded to a whole number, ties to even, which stands in the sum's lowest bits.
const SHIFT: f32 = 12_582_912.0;

fn chunk(codes: &mut [u8; LANES], values: &[f32; LANES], scale: f32, squares: &mut [[f32; LANES]; 2]) {
    for lane in 0..LANES {
        let ratio = values[lane] / scale;
        let rounded = ratio.clamp(-LARGEST, LARGEST) + SHIFT;
        codes[lane] = rounded.to_bits() as u8;
        let error = ratio - (rounded - SHIFT);
        squares[0][lane] += error * error;
        squares[1][lane] += ratio * ratio;
    }
}

#[cfg(test)]
mod tests;
