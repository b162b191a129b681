use proptest::prelude::{prop, prop_assert, prop_assert_eq, proptest};

use super::{encode, scale};

proptest! {
    #[test]
    fn codes_are_the_values_over_a_scale_rounded_to_even(
        row in prop::collection::vec(-1e3f32..1e3, 1..300),
        shrink in -30i32..30,
    ) {
        let row: Vec<f32> = row.iter().map(|value| value * 2f32.powi(shrink)).collect();
        let largest = row.iter().map(|value| value.abs()).fold(0.0, f32::max);
        let own = scale(&row);
        prop_assert_eq!(own, largest / 127.0);
        let mut codes = vec![0; row.len()];
        let squares = encode(&row, own, &mut codes);
        let (mut error, mut total) = (0.0, 0.0);
        for (code, value) in codes.iter().zip(&row) {
            let code = code.cast_signed();
            prop_assert_eq!(f32::from(code), (value / own).round_ties_even());
            error += (f64::from(code) * f64::from(own) - f64::from(*value)).powi(2);
            total += f64::from(*value).powi(2);
        }
        let relative = (error / total).sqrt();
        prop_assert!((squares.relative() - relative).abs() < 1e-5, "{} {relative}", squares.relative());
    }
}

#[test]
fn ties_zeros_and_the_smallest_values() {
    let mut codes = [9; 5];
    encode(&[127.0, 0.5, 1.5, -2.5, -127.0], 1.0, &mut codes);
    assert_eq!(codes.map(u8::cast_signed), [127, 0, 2, -2, -127]);
    assert_eq!(scale(&[0.0, -0.0]), 1.0);
    assert_eq!(encode(&[0.0, -0.0], 1.0, &mut codes).relative(), 0.0);
    assert_eq!(codes[..2], [0, 0]);
    // Scales of subnormal rows round to few bits: codes stay in range.
    let row = [f32::from_bits(190), f32::from_bits(1)];
    encode(&row, scale(&row), &mut codes[..2]);
    assert_eq!(codes[..2], [127, 1]);
    assert_eq!(scale(&row[1..]), 1.0);
}
