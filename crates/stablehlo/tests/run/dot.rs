use half::bf16;
use stablehlo::{DType, Dot, Precision, Triangular};

use crate::row::{Row, row, tensor, vector};

pub(crate) fn rows() -> Vec<Row> {
    let a = tensor(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]);
    let b = tensor(&[1.0f32, 0.0, -1.0, 2.0, 0.5, 1.0], &[3, 2]);
    let halves = |values: &[f32]| values.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>();
    let (h, g) = (vector(&halves(&[1.0, 0.5])), vector(&halves(&[3.0, 257.0])));
    let mut rows = vec![
        row(
            "matmul",
            &[a.clone(), b],
            |f, x| vec![f.matmul(x[0], x[1])],
            &[tensor(&[0.5f32, 7.0, 2.0, 16.0], &[2, 2])],
        ),
        row(
            "linear",
            &[a.clone(), tensor(&[1.0f32, -1.0, 1.0], &[1, 3])],
            |f, x| vec![f.linear(x[0], x[1])],
            &[tensor(&[2.0f32, 5.0], &[2, 1])],
        ),
        // Batch over the first dimension, contract the second: a row-wise inner product.
        row(
            "dot_general batched",
            &[a.clone(), a],
            |f, x| {
                let dot = Dot::contract([1], [1]).batch([0], [0]).precision(Precision::Highest);
                vec![f.dot_general(x[0], x[1], &dot)]
            },
            &[vector(&[14.0f32, 77.0])],
        ),
        row(
            "bf16 to f32",
            &[h, g],
            |f, x| vec![f.dot_general(x[0], x[1], &Dot::contract([0], [0]).out(DType::F32))],
            &[tensor(&[3.0 + 0.5 * 256.0f32], &[])],
        ),
        row(
            "s8 to s32",
            &[vector(&[100i8, -128]), vector(&[100i8, 127])],
            |f, x| vec![f.dot_general(x[0], x[1], &Dot::contract([0], [0]).out(DType::S32))],
            &[tensor(&[10_000 - 16_256i32], &[])],
        ),
        row(
            "f8 to f32",
            &[vector(&[1.5f32, 2.0])],
            |f, x| {
                let narrow = f.convert(x[0], DType::F8E4M3FN);
                vec![f.dot_general(narrow, narrow, &Dot::contract([0], [0]).out(DType::F32))]
            },
            &[tensor(&[6.25f32], &[])],
        ),
    ];
    rows.extend(systems());
    rows
}

/// Lower triangle `[[2, .], [1, 4]]`, solved from the left, from the right, transposed, and with ones as diagonal.
fn systems() -> Vec<Row> {
    let a = tensor(&[2.0f32, 99.0, 1.0, 4.0], &[2, 2]);
    let b = tensor(&[2.0f32, 9.0], &[2, 1]);
    let plain = Triangular { left_side: true, lower: true, unit_diagonal: false, transpose: false };
    vec![row(
        "triangular_solve",
        &[a, b],
        move |f, x| {
            let across = f.reshape(x[1], &[1, 2]);
            vec![
                f.triangular_solve(x[0], x[1], plain),
                f.triangular_solve(x[0], across, Triangular { left_side: false, ..plain }),
                f.triangular_solve(x[0], x[1], Triangular { transpose: true, ..plain }),
                f.triangular_solve(x[0], x[1], Triangular { unit_diagonal: true, ..plain }),
            ]
        },
        &[
            tensor(&[1.0f32, 2.0], &[2, 1]),
            tensor(&[-0.125f32, 2.25], &[1, 2]),
            tensor(&[-0.125f32, 2.25], &[2, 1]),
            tensor(&[2.0f32, 7.0], &[2, 1]),
        ],
    )]
}
