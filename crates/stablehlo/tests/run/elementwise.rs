use half::{bf16, f16};
use stablehlo::{DType, Direction, Element, Func, Order, Value};

use crate::row::{Row, row, scalar, vector};

type Binary = fn(&Func, Value, Value) -> Value;
type Unary = fn(&Func, Value) -> Value;

const A: [f32; 8] = [-2.5, -1.0, -0.0, 0.5, 3.0, f32::INFINITY, f32::NAN, 7.25];
const B: [f32; 8] = [2.0, -1.5, 4.0, 0.25, 3.0, 1.0, 2.0, -2.0];
const I: [i32; 6] = [-7, 5, i32::MIN, i32::MAX, 0, 12];
const J: [i32; 6] = [3, -2, 7, 4, 33, 5];
const U: [u32; 6] = [7, 0xF000_0001, 1, u32::MAX, 0, 12];
const V: [u32; 6] = [3, 4, 31, 1, 32, 5];

fn zip<T: Copy, R>(a: &[T], b: &[T], want: fn(T, T) -> R) -> Vec<R> {
    a.iter().zip(b).map(|(&a, &b)| want(a, b)).collect()
}

fn two<T: Element, R: Element>(name: &str, a: &[T], b: &[T], op: Binary, want: fn(T, T) -> R) -> Row {
    let name = format!("{name} {}", T::DTYPE);
    let want = zip(a, b, want);
    row(&name, &[vector(a), vector(b)], move |f, x| vec![op(f, x[0], x[1])], &[vector(&want)])
}

fn one<T: Element, R: Element>(name: &str, x: &[T], op: Unary, want: fn(T) -> R) -> Row {
    let name = format!("{name} {}", T::DTYPE);
    let want: Vec<R> = x.iter().map(|&x| want(x)).collect();
    row(&name, &[vector(x)], move |f, x| vec![op(f, x[0])], &[vector(&want)])
}

fn nan_max(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { a.max(b) }
}

fn nan_min(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { a.min(b) }
}

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = float_pairs();
    rows.extend(int_pairs());
    rows.extend(float_singles());
    rows.extend(int_singles());
    rows.extend(comparisons());
    rows.extend(choices());
    rows.extend(conversions());
    rows
}

fn float_pairs() -> Vec<Row> {
    let positive = [0.5f32, 2.0, 3.0, 1.0];
    vec![
        two("add", &A, &B, Func::add, |a, b| a + b),
        two("sub", &A, &B, Func::sub, |a, b| a - b),
        two("mul", &A, &B, Func::mul, |a, b| a * b),
        two("div", &A, &B, Func::div, |a, b| a / b),
        two("max", &A, &B, Func::max, nan_max),
        two("min", &A, &B, Func::min, nan_min),
        two("pow", &positive, &[-1.5, 3.0, 0.5, 9.0], Func::pow, f32::powf),
        two("rem", &A, &B, Func::rem, |a, b| a % b),
        two("add", &[bf16::ONE], &[bf16::from_f32(0.5)], Func::add, |a, b| a + b),
        two("add", &[f16::ONE], &[f16::from_f32(0.5)], Func::add, |a, b| a + b),
        two("mul", &[1.0f64 / 3.0], &[3.0], Func::mul, |a, b| a * b),
    ]
}

fn int_pairs() -> Vec<Row> {
    let left = |a: i32, b: i32| if (0..32).contains(&b) { a << b } else { 0 };
    vec![
        two("add", &I, &J, Func::add, i32::wrapping_add),
        two("sub", &I, &J, Func::sub, i32::wrapping_sub),
        two("mul", &I, &J, Func::mul, i32::wrapping_mul),
        two("div", &I, &J, Func::div, i32::wrapping_div),
        two("rem", &I, &J, Func::rem, i32::wrapping_rem),
        two("max", &U, &V, Func::max, Ord::max),
        two("min", &I, &J, Func::min, Ord::min),
        two("and", &I, &J, Func::and, |a, b| a & b),
        two("or", &I, &J, Func::or, |a, b| a | b),
        two("xor", &I, &J, Func::xor, |a, b| a ^ b),
        two("and", &[true, true], &[true, false], Func::and, |a, b| a && b),
        two("or", &[false, true], &[false, false], Func::or, |a, b| a || b),
        two("xor", &[true, true], &[true, false], Func::xor, |a, b| a ^ b),
        two("shift_left", &I, &[1, 31, 4, 0, 33, 2], Func::shift_left, left),
        two("shift_right_logical", &U, &V, Func::shift_right_logical, |a, b| a.checked_shr(b).unwrap_or(0)),
        two("shift_right_arithmetic", &I, &[1, 2, 4, 30, 0, 3], Func::shift_right_arithmetic, |a, b| a >> b),
    ]
}

fn float_singles() -> Vec<Row> {
    let x = [-3.5f32, -0.75, -0.0, 1e-7, 0.5, 1.0, 2.5, 9.0];
    let positive = [1e-6f32, 0.25, 1.0, 2.0, 1e6];
    vec![
        one("neg", &A, Func::neg, |x: f32| -x),
        one("abs", &A, Func::abs, f32::abs),
        one("exp", &x, Func::exp, f32::exp),
        one("expm1", &x, Func::expm1, f32::exp_m1),
        one("log", &positive, Func::log, f32::ln),
        one("log1p", &positive, Func::log1p, f32::ln_1p),
        one("logistic", &x, Func::logistic, |x: f32| 1.0 / (1.0 + (-x).exp())),
        one("tanh", &x, Func::tanh, f32::tanh),
        one("sqrt", &positive, Func::sqrt, f32::sqrt),
        one("rsqrt", &positive, Func::rsqrt, |x: f32| 1.0 / x.sqrt()),
        one("floor", &x, Func::floor, f32::floor),
        one("ceil", &x, Func::ceil, f32::ceil),
        one("round", &[0.5f32, 1.5, 2.5, -0.5, 3.7], Func::round_nearest_even, f32::round_ties_even),
        one("sign", &[-2.0f32, 0.0, 3.0, f32::NAN], Func::sign, |x| if x == 0.0 { x } else { x.signum() }),
        one("cosine", &x, Func::cosine, f32::cos),
        one("sine", &x, Func::sine, f32::sin),
        one("is_finite", &A, Func::is_finite, f32::is_finite),
    ]
}

fn int_singles() -> Vec<Row> {
    vec![
        one("neg", &I, Func::neg, i32::wrapping_neg),
        one("abs", &J, Func::abs, i32::abs),
        one("sign", &I, Func::sign, i32::signum),
        one("not", &I, Func::not, |x: i32| !x),
        one("not", &[true, false], Func::not, |x: bool| !x),
        one("popcnt", &U, Func::popcnt, u32::count_ones),
    ]
}

fn comparisons() -> Vec<Row> {
    let total: Binary = |f, a, b| f.compare(Direction::Lt, a, b, Order::Total);
    vec![
        two("eq", &A, &B, Func::eq, |a, b| a == b),
        two("ne", &A, &A, Func::ne, |a, b| a != b),
        two("lt", &A, &B, Func::lt, |a, b| a < b),
        two("le", &A, &B, Func::le, |a, b| a <= b),
        two("gt", &I, &J, Func::gt, |a, b| a > b),
        two("ge", &U, &V, Func::ge, |a, b| a >= b),
        two("lt", &[false, true], &[true, false], Func::lt, |a, b| !a & b),
        two("total lt", &A, &B, total, |a: f32, b: f32| a.total_cmp(&b).is_lt()),
        two("total lt", &[-0.0f32, 0.0], &[0.0, -0.0], total, |a: f32, b: f32| a.total_cmp(&b).is_lt()),
    ]
}

fn choices() -> Vec<Row> {
    let (pred, x, y) = (vector(&[true, false, true]), vector(&[1i32, 2, 3]), vector(&[7i32, 8, 9]));
    let values = vector(&[-3.0f32, 0.25, 4.0]);
    vec![
        row(
            "select",
            &[pred, x.clone(), y.clone()],
            |f, x| vec![f.select(x[0], x[1], x[2])],
            &[vector(&[1, 8, 3])],
        ),
        row("select scalar", &[scalar(false), x, y.clone()], |f, x| vec![f.select(x[0], x[1], x[2])], &[y]),
        row(
            "clamp",
            &[scalar(-1.0f32), values, scalar(1.0f32)],
            |f, x| vec![f.clamp(x[0], x[1], x[2]), f.clamp(f.neg(x[1]), x[1], x[1])],
            &[vector(&[-1.0f32, 0.25, 1.0]), vector(&[-3.0f32, 0.25, 4.0])],
        ),
    ]
}

fn conversions() -> Vec<Row> {
    let x = [1.0f32, -2.75, 300.0, 0.1];
    vec![
        one("convert s32", &x, |f, x| f.convert(x, DType::S32), |x: f32| x as i32),
        one("convert bf16", &x, |f, x| f.convert(x, DType::BF16), |x: f32| bf16::from_f32(x)),
        one("convert f32", &I, |f, x| f.convert(x, DType::F32), |x: i32| x as f32),
        one("convert pred", &[0.0f32, 0.5], |f, x| f.convert(x, DType::Pred), |x: f32| x != 0.0),
        // Round trips show the narrow types' own rounding: 3 mantissa bits; 1; none.
        one(
            "convert f8",
            &x,
            |f, x| f.convert(f.convert(x, DType::F8E4M3FN), DType::F32),
            |x: f32| {
                [(1.0f32, 1.0f32), (-2.75, -2.75), (300.0, 288.0), (0.1, 0.101_562_5)]
                    .iter()
                    .find(|p| p.0 == x)
                    .unwrap()
                    .1
            },
        ),
        one(
            "convert f4",
            &[1.2f32, -5.0, 0.6],
            |f, x| f.convert(f.convert(x, DType::F4E2M1FN), DType::F32),
            |x: f32| [(1.2f32, 1.0f32), (-5.0, -4.0), (0.6, 0.5)].iter().find(|p| p.0 == x).unwrap().1,
        ),
        one(
            "convert e8m0",
            &[0.25f32, 8.0],
            |f, x| f.convert(f.convert(x, DType::F8E8M0FNU), DType::F32),
            |x: f32| x,
        ),
    ]
}
