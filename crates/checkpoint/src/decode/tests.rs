use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

use super::fp8::{self, Grid};
use super::mxfp4;

/// OCP MX 1.0, 5.3.3: sign, two bits of exponent with bias 1, one of fraction.
fn e2m1(code: u8) -> f64 {
    let sign = if code & 8 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (code >> 1 & 3, f64::from(code & 1));
    sign * if exponent == 0 {
        fraction / 2.0
    } else {
        2f64.powi(i32::from(exponent) - 1) * (1.0 + fraction / 2.0)
    }
}

/// OCP FP8, e4m3: bias 7, all ones is NaN.
fn e4m3(code: u8) -> f64 {
    let sign = if code & 128 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(code >> 3 & 15), f64::from(code & 7));
    match (exponent, code & 7) {
        (15, 7) => f64::NAN,
        (0, _) => sign * 2f64.powi(-6) * fraction / 8.0,
        _ => sign * 2f64.powi(exponent - 7) * (1.0 + fraction / 8.0),
    }
}

#[test]
fn every_e4m3_code_and_every_scale_byte_is_its_definition() {
    for code in 0..=255 {
        let (table, defined) = (fp8::E4M3[usize::from(code)], e4m3(code));
        assert!(f64::from(table) == defined || (table.is_nan() && defined.is_nan()), "{code}");
        assert_eq!(table.is_sign_negative(), code >= 128);
        let power = f64::from(mxfp4::e8m0(code));
        assert!(power == 2f64.powi(i32::from(code) - 127) || (code == 255 && power.is_nan()), "{code}");
    }
    let largest = mxfp4::LARGEST_SCALE;
    assert!((6.0 * mxfp4::e8m0(largest)).is_finite() && !(6.0 * mxfp4::e8m0(largest + 1)).is_finite());
}

proptest! {
    #[test]
    fn any_window_of_packed_groups_is_their_definition(
        codes in prop::collection::vec(any::<[u8; 16]>(), 1..5),
        scales in prop::collection::vec(0..=mxfp4::LARGEST_SCALE, 5),
        from in 0usize..32,
        cut in 0usize..32,
    ) {
        let bytes: Vec<u8> = codes.concat();
        let len = (32 * codes.len()).saturating_sub(from + cut).max(1).min(32 * codes.len() - from);
        let mut out = vec![f32::NAN; len];
        mxfp4::decode(&bytes, &scales, from, &mut out);
        for (at, value) in out.iter().enumerate().map(|(at, value)| (at + from, value)) {
            let nibble = if at % 2 == 0 { bytes[at / 2] & 15 } else { bytes[at / 2] >> 4 };
            let power = 2f64.powi(i32::from(scales[at / 32]) - 127);
            prop_assert_eq!(f64::from(*value), e2m1(nibble) * power);
        }
    }

    #[test]
    fn any_window_of_fp8_blocks_is_their_definition(
        rows in 1usize..300,
        columns in 1usize..300,
        matrices in 1usize..4,
        (from, to) in (0.0..1.0, 0.0..1.0),
        seed in any::<u8>(),
    ) {
        let grid = Grid { rows, columns };
        let total = matrices * rows * columns;
        let code = |at: usize| (at as u8).wrapping_mul(37).wrapping_add(seed) & 0xbf;
        let (down, across) = (rows.div_ceil(128), columns.div_ceil(128));
        let factor = |matrix: usize, row: usize, column: usize| {
            ((matrix * down + row / 128) * across + column / 128) as f32 * 0.75 - 2.0
        };
        let scales: Vec<f32> = (0..matrices * down * across).map(|at| at as f32 * 0.75 - 2.0).collect();
        let start = (from * total as f64) as usize;
        let end = (start + (to * (total - start) as f64) as usize).max(start + 1);
        let codes: Vec<u8> = (start..end).map(code).collect();
        let mut out = vec![f32::NAN; codes.len()];
        let first = grid.block_row(start / columns) * across;
        fp8::decode(&codes, &scales[first..], start, grid, &mut out);
        for (at, value) in (start..end).zip(out) {
            let (matrix, row, column) = (at / (rows * columns), at / columns % rows, at % columns);
            let expected = e4m3(code(at)) * f64::from(factor(matrix, row, column));
            prop_assert!(f64::from(value) == expected, "{} is {}, not {}", at, value, expected);
        }
    }
}
