use stablehlo::{DType, Reducer, RngAlgorithm, Window};

use crate::row::{Row, Tensor, row, scalar, tensor, vector};

fn grid() -> Tensor {
    tensor(&[1.0f32, -2.0, 3.0, 0.5, 4.0, -6.0], &[2, 3])
}

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = reductions();
    rows.extend(windows());
    rows.extend(random());
    rows
}

fn reductions() -> Vec<Row> {
    let flags = tensor(&[true, false, true, true], &[2, 2]);
    let nan = f32::NAN;
    let ties = [2.0, 5.0, 5.0, nan, 1.0, nan, f32::NEG_INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY];
    vec![
        row(
            "sum, max, min",
            &[grid()],
            |f, x| vec![f.sum(x[0], &[1]), f.reduce_max(x[0], &[0]), f.reduce_min(x[0], &[0, 1])],
            &[vector(&[2.0f32, -1.5]), vector(&[1.0f32, 4.0, 3.0]), scalar(-6.0f32)],
        ),
        row(
            "any, all",
            &[flags],
            |f, x| vec![f.any(x[0], &[0]), f.all(x[0], &[1])],
            &[vector(&[true, true]), vector(&[false, true])],
        ),
        row(
            "product from two",
            &[grid(), scalar(2.0f32)],
            |f, x| vec![f.reduce(x[0], x[1], &[1], Reducer::Mul)],
            &[vector(&[-12.0f32, -24.0])],
        ),
        row(
            "bits",
            &[vector(&[0b1100i32, 0b0110])],
            |f, x| vec![f.all(x[0], &[0]), f.any(x[0], &[0])],
            &[scalar(0b0100i32), scalar(0b1110i32)],
        ),
        // Two tensors at once: the sum and the sum of squares.
        row(
            "reduce_with",
            &[grid(), scalar(0.0f32)],
            |f, x| {
                let squares = f.mul(x[0], x[0]);
                f.reduce_with(&[x[0], squares], &[x[1], x[1]], &[1], |f, sums, next| {
                    vec![f.add(sums[0], next[0]), f.add(sums[1], next[1])]
                })
            },
            &[vector(&[2.0f32, -1.5]), vector(&[14.0f32, 52.25])],
        ),
        // First of equals; NaN above all; all minus infinity.
        row("argmax", &[tensor(&ties, &[3, 3])], |f, x| vec![f.argmax(x[0], 1)], &[vector(&[1i32, 0, 0])]),
        row("argmax of integers", &[vector(&[3i32, 9, 9])], |f, x| vec![f.argmax(x[0], 0)], &[scalar(1i32)]),
    ]
}

fn windows() -> Vec<Row> {
    vec![
        row(
            "reduce_window",
            &[vector(&[1i32, 5, 2, 4, 3]), scalar(0i32)],
            |f, x| {
                let window = Window { dims: vec![3], strides: vec![2], padding: vec![(1, 1)] };
                vec![f.reduce_window(x[0], x[1], &window, Reducer::Max)]
            },
            &[vector(&[5i32, 5, 4])],
        ),
        row(
            "cumsum",
            &[grid()],
            |f, x| vec![f.cumsum(x[0], 1), f.cumsum(x[0], 0)],
            &[
                tensor(&[1.0f32, -1.0, 2.0, 0.5, 4.5, -1.5], &[2, 3]),
                tensor(&[1.0f32, -2.0, 3.0, 1.5, 2.0, -3.0], &[2, 3]),
            ],
        ),
    ]
}

/// Threefry 2x32 with 20 rounds (Salmon et al. 2011).
fn threefry(key: u64, counter: u64) -> [u32; 2] {
    let (k0, k1) = (key as u32, (key >> 32) as u32);
    let keys = [k0, k1, k0 ^ k1 ^ 0x1BD1_1BDA];
    let mut x = [(counter as u32).wrapping_add(k0), ((counter >> 32) as u32).wrapping_add(k1)];
    for group in 0..5u32 {
        let turns = if group % 2 == 0 { [13, 15, 26, 6] } else { [17, 29, 16, 24] };
        for turn in turns {
            x[0] = x[0].wrapping_add(x[1]);
            x[1] = x[1].rotate_left(turn) ^ x[0];
        }
        let at = group as usize + 1;
        x[0] = x[0].wrapping_add(keys[at % 3]);
        x[1] = x[1].wrapping_add(keys[(at + 1) % 3]).wrapping_add(group + 1);
    }
    x
}

fn random() -> Vec<Row> {
    let (key, counter) = (0x0123_4567_89AB_CDEFu64, 41u64);
    let pairs = [threefry(key, counter), threefry(key, counter + 1)];
    let bits = pairs.concat();
    vec![row(
        "threefry",
        &[vector(&[key, counter])],
        |f, x| {
            let (state, bits) = f.rng_bit_generator(x[0], DType::U32.tensor([4]), RngAlgorithm::ThreeFry);
            vec![state, bits]
        },
        &[vector(&[key, counter + 2]), vector(&bits)],
    )]
}
