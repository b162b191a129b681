use half::{bf16, f16};
use stablehlo::{DType, Value};

use crate::row::{Row, row, scalar, tensor, vector};

/// 0, 1, 2, ... as `[2, 3]`.
fn grid() -> crate::row::Tensor {
    tensor(&[0i32, 1, 2, 3, 4, 5], &[2, 3])
}

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = constants();
    rows.extend(counters());
    rows.extend(arrangements());
    rows.extend(slices());
    rows.extend(bits());
    rows
}

fn constants() -> Vec<Row> {
    let long: Vec<f32> = (0..100).map(|at| (at as f32).sin() * 1e-3).collect();
    let odd = [0.1f32, f32::MIN_POSITIVE, f32::MAX, 1e-45, -0.0, f32::NEG_INFINITY, 16_777_217.0];
    let (long_again, odd_bits) = (long.clone(), odd.map(f32::to_bits));
    vec![
        // Through the bits, so that not even a rounding passes.
        row(
            "constant bits",
            &[],
            move |f, _| vec![f.bitcast_convert(f.constant(&odd, &[7]), DType::U32)],
            &[vector(&odd_bits)],
        ),
        row(
            "constant long",
            &[],
            move |f, _| vec![f.constant(&long_again, &[10, 10])],
            &[tensor(&long, &[10, 10])],
        ),
        row(
            "constant kinds",
            &[],
            |f, _| {
                vec![
                    f.constant(&[1i64, -2], &[1, 2]),
                    f.splat(9u8, &[3]),
                    f.constant(&[true, false], &[2]),
                    f.scalar(bf16::from_f32(0.3)),
                    f.scalar(f16::from_f32(0.3)),
                    f.scalar(0.1f64),
                    f.full(DType::S8.tensor([2]), -128.0),
                    f.constant::<f32>(&[], &[0, 4]),
                ]
            },
            &[
                tensor(&[1i64, -2], &[1, 2]),
                vector(&[9u8; 3]),
                vector(&[true, false]),
                scalar(bf16::from_f32(0.3)),
                scalar(f16::from_f32(0.3)),
                scalar(0.1f64),
                vector(&[-128i8; 2]),
                tensor::<f32>(&[], &[0, 4]),
            ],
        ),
    ]
}

fn counters() -> Vec<Row> {
    vec![
        row(
            "constant extremes",
            &[],
            |f, _| {
                let mut all: Vec<Value> = Vec::new();
                for dtype in [DType::F32, DType::S32, DType::U8, DType::Pred] {
                    all.extend([f.lowest(dtype), f.highest(dtype)]);
                }
                all
            },
            &[
                scalar(f32::NEG_INFINITY),
                scalar(f32::INFINITY),
                scalar(i32::MIN),
                scalar(i32::MAX),
                scalar(u8::MIN),
                scalar(u8::MAX),
                scalar(false),
                scalar(true),
            ],
        ),
        row(
            "iota",
            &[],
            |f, _| vec![f.iota(DType::S32.tensor([2, 3]), 1), f.iota(DType::F32.tensor([2, 2]), 0)],
            &[tensor(&[0i32, 1, 2, 0, 1, 2], &[2, 3]), tensor(&[0.0f32, 0.0, 1.0, 1.0], &[2, 2])],
        ),
        row(
            "scalars",
            &[vector(&[1.0f32, 2.0])],
            |f, x| vec![f.add_scalar(f.mul_scalar(x[0], 3.0), 0.5), f.splat_like(x[0], 4.0)],
            &[vector(&[3.5f32, 6.5]), vector(&[4.0f32, 4.0])],
        ),
    ]
}

fn arrangements() -> Vec<Row> {
    vec![
        row(
            "broadcast_in_dim",
            &[vector(&[1i32, 2]), tensor(&[5i32, 6], &[2, 1])],
            |f, x| vec![f.broadcast_in_dim(x[0], &[2, 3], &[0]), f.broadcast_in_dim(x[1], &[2, 2], &[1, 0])],
            &[tensor(&[1i32, 1, 1, 2, 2, 2], &[2, 3]), tensor(&[5i32, 6, 5, 6], &[2, 2])],
        ),
        row(
            "reshape",
            &[grid()],
            |f, x| vec![f.reshape(x[0], &[3, 2])],
            &[tensor(&[0i32, 1, 2, 3, 4, 5], &[3, 2])],
        ),
        row(
            "transpose",
            &[grid()],
            |f, x| vec![f.transpose(x[0], &[1, 0])],
            &[tensor(&[0i32, 3, 1, 4, 2, 5], &[3, 2])],
        ),
        row(
            "concatenate",
            &[grid(), tensor(&[8i32, 9], &[2, 1])],
            |f, x| vec![f.concatenate(&[x[0], x[1]], 1)],
            &[tensor(&[0i32, 1, 2, 8, 3, 4, 5, 9], &[2, 4])],
        ),
        row(
            "reverse",
            &[grid()],
            |f, x| vec![f.reverse(x[0], &[1])],
            &[tensor(&[2i32, 1, 0, 5, 4, 3], &[2, 3])],
        ),
        row(
            "pad",
            &[vector(&[1i32, 2, 3]), scalar(9i32)],
            |f, x| vec![f.pad(x[0], x[1], &[1], &[2], &[1]), f.pad(x[0], x[1], &[-1], &[0], &[0])],
            &[vector(&[9i32, 1, 9, 2, 9, 3, 9, 9]), vector(&[2i32, 3])],
        ),
    ]
}

fn slices() -> Vec<Row> {
    vec![
        row(
            "slice",
            &[grid()],
            |f, x| vec![f.slice(x[0], &[1, 0], &[2, 3], &[1, 2]), f.slice_axis(x[0], 1, 1, 3)],
            &[tensor(&[3i32, 5], &[1, 2]), tensor(&[1i32, 2, 4, 5], &[2, 2])],
        ),
        row(
            "split",
            &[grid()],
            |f, x| f.split(x[0], 1, &[1, 2]),
            &[tensor(&[0i32, 3], &[2, 1]), tensor(&[1i32, 2, 4, 5], &[2, 2])],
        ),
        // The second start is past the end and is moved back.
        row(
            "dynamic_slice",
            &[grid(), scalar(1i32), scalar(9i32)],
            |f, x| vec![f.dynamic_slice(x[0], &[x[1], x[2]], &[1, 2]), f.dynamic_index(x[0], 0, x[1])],
            &[tensor(&[4i32, 5], &[1, 2]), vector(&[3i32, 4, 5])],
        ),
        row(
            "dynamic_update_slice",
            &[grid(), tensor(&[7i32, 8], &[1, 2]), scalar(1i32), vector(&[7i32, 8])],
            |f, x| {
                vec![
                    f.dynamic_update_slice(x[0], x[1], &[x[2], x[2]]),
                    f.dynamic_update_index(x[0], x[3], 1, x[2]),
                ]
            },
            &[tensor(&[0i32, 1, 2, 3, 7, 8], &[2, 3]), tensor(&[0i32, 7, 2, 3, 8, 5], &[2, 3])],
        ),
    ]
}

fn bits() -> Vec<Row> {
    let halves = [bf16::from_f32(1.5), bf16::from_f32(-2.0)];
    let word = u32::from(halves[0].to_bits()) | u32::from(halves[1].to_bits()) << 16;
    vec![
        row(
            "bitcast same",
            &[vector(&[1.0f32])],
            |f, x| vec![f.bitcast_convert(x[0], DType::U32)],
            &[vector(&[0x3F80_0000u32])],
        ),
        row(
            "bitcast narrow",
            &[scalar(word)],
            |f, x| vec![f.bitcast_convert(x[0], DType::BF16)],
            &[vector(&halves)],
        ),
        row(
            "bitcast wide",
            &[vector(&halves)],
            |f, x| vec![f.bitcast_convert(x[0], DType::U32)],
            &[scalar(word)],
        ),
        // A packed FP4 byte: the low nibble is the first element. 0x2 is 1.0, 0xF is -6.0.
        row(
            "bitcast f4",
            &[vector(&[0xF2u8])],
            |f, x| vec![f.convert(f.bitcast_convert(x[0], DType::F4E2M1FN), DType::F32)],
            &[tensor(&[1.0f32, -6.0], &[1, 2])],
        ),
    ]
}
