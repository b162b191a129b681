use stablehlo::{DType, Module};

use super::{Matrix, linear};
use crate::on_cpu;

const MAGNITUDES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

#[test]
fn every_packed_value_and_power_of_two_is_unpacked_as_it_is_defined() {
    // 32 rows of as many columns as scales, from 2^-125 to 2^120: all halves, and then in the other order.
    let scales = [2u8, 60, 126, 127, 128, 200, 247];
    let packed: Vec<u8> = (0..16u8).flat_map(|at| [at | (15 - at) << 4; 7]).collect();
    let module = Module::new("unpack");
    let f = module.main();
    let bytes = f.input("packed", DType::U8.tensor([16, scales.len() as i64]));
    let powers = f.input("scales", DType::U8.tensor([1, scales.len() as i64]));
    let matrix = Matrix::Mxfp4 { packed: bytes, scales: powers };
    f.ret(&[("out", matrix.float(&f, DType::F32))]);
    let text = module.finish().unwrap().text;
    let arguments = [on_cpu::array(&packed, &[16, scales.len()]), on_cpu::array(&scales, &[1, scales.len()])];
    let out: Vec<f32> = on_cpu::run(&text, &[&arguments[0], &arguments[1]])[0].to_vec().unwrap();
    let value = |half: u8| if half < 8 { MAGNITUDES[half as usize] } else { -MAGNITUDES[half as usize - 8] };
    for (row, &scale) in scales.iter().enumerate() {
        for column in 0..32u8 {
            let half = if column < 16 { column } else { 31 - column };
            let wanted = value(half) * 2f32.powi(i32::from(scale) - 127);
            assert_eq!(out[row * 32 + column as usize], wanted, "scale {scale}, column {column}");
        }
    }
}

#[test]
fn eight_bit_products_are_as_exact_as_their_rounding() {
    let (rows, columns) = (3usize, 64usize);
    let x: Vec<f32> = (0..2 * columns).map(|at| ((at * 37 % 101) as f32 - 50.0) / 9.0).collect();
    let values: Vec<i8> = (0..rows * columns).map(|at| (at * 53 % 255) as i8).collect();
    let scales = [0.01f32, 0.5, 3.0];
    let module = Module::new("int8");
    let f = module.main();
    let input = f.input("x", DType::F32.tensor([2, 64]));
    let weights = f.input("values", DType::S8.tensor([3, 64]));
    let factors = f.input("scales", DType::F32.tensor([3]));
    f.ret(&[("out", linear(&f, input, Matrix::Int8 { values: weights, scales: factors }))]);
    let text = module.finish().unwrap().text;
    let arguments = [on_cpu::array(&x, &[2, 64])];
    let (weights, factors) = (on_cpu::array(&values, &[3, 64]), on_cpu::array(&scales, &[3]));
    let out: Vec<f32> = on_cpu::run(&text, &[&arguments[0], &weights, &factors])[0].to_vec().unwrap();
    for (at, got) in out.iter().enumerate() {
        let (row, column) = (at / rows, at % rows);
        let x = &x[row * columns..(row + 1) * columns];
        let peak = x.iter().fold(0f32, |peak, x| peak.max(x.abs())) / 127.0;
        let sum: i32 = (0..columns)
            .map(|c| (x[c] / peak).round_ties_even() as i32 * i32::from(values[column * columns + c]))
            .sum();
        let wanted = f64::from(sum) * f64::from(peak) * f64::from(scales[column]);
        assert!((f64::from(*got) - wanted).abs() <= 1e-5 * wanted.abs(), "{got} for {wanted}");
    }
}
