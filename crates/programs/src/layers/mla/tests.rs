use stablehlo::{DType, Module};

use super::{Pages, attend_batch, attend_chunk};
use crate::on_cpu;

const LAYERS: usize = 2;
const PAGES: usize = 40;
const PAGE: usize = 32;
const WIDTH: usize = 6;
const LORA: usize = 4;
const HEADS: usize = 2;

fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// A cache in which only the named pages of the second layer hold `length` written tokens; all else is NaN.
struct Cache {
    all: Vec<f32>,
}

impl Cache {
    fn new() -> Self {
        Self { all: vec![f32::NAN; LAYERS * (PAGES + 1) * PAGE * WIDTH] }
    }

    fn write(&mut self, pages: &[i32], length: usize, seed: u64) -> Vec<f32> {
        let tokens = numbers(length * WIDTH, seed);
        for (at, token) in tokens.chunks_exact(WIDTH).enumerate() {
            let page = PAGES + 1 + pages[at / PAGE] as usize;
            let place = (page * PAGE + at % PAGE) * WIDTH;
            self.all[place..place + WIDTH].copy_from_slice(token);
        }
        tokens
    }
}

/// Softmax attention of one query over `tokens`, in double precision.
fn attend(query: &[f32], tokens: &[f32]) -> Vec<f64> {
    let score =
        |token: &[f32]| -> f64 { query.iter().zip(token).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum() };
    let weights: Vec<f64> = tokens.chunks_exact(WIDTH).map(|token| score(token).exp()).collect();
    let total: f64 = weights.iter().sum();
    let sum =
        |c: usize| tokens.chunks_exact(WIDTH).zip(&weights).map(|(t, w)| w * f64::from(t[c])).sum::<f64>();
    (0..LORA).map(|c| sum(c) / total).collect()
}

fn assert_close(got: &[f32], wanted: &[f64]) {
    let off: f64 = got.iter().zip(wanted).map(|(&a, b)| (f64::from(a) - b).powi(2)).sum();
    let scale: f64 = wanted.iter().map(|x| x * x).sum();
    assert!((off / scale).sqrt() < 1e-6, "differs by {:.1e}", (off / scale).sqrt());
}

/// Scattered pages for a sequence, filled up with the trash page.
fn table(pages: &[i32]) -> Vec<i32> {
    let mut table = pages.to_vec();
    table.resize(20, PAGES as i32);
    table
}

#[test]
fn a_chunk_sees_its_past_over_several_blocks_and_never_what_was_not_written() {
    let (start, valid, rows) = (530usize, 9usize, 12usize);
    let pages: Vec<i32> = (0..17).map(|page| (page * 7 + 3) % 40).collect();
    let mut cache = Cache::new();
    let tokens = cache.write(&pages, start + valid, 1);
    let queries = numbers(rows * HEADS * WIDTH, 2);

    let module = Module::new("chunk");
    let f = module.main();
    let latents = f.input("latents", DType::F32.tensor([2, 41, 32, 6]));
    let table_in = f.input("table", DType::S32.tensor([20]));
    let q = f.input("q", DType::F32.tensor([12, 2, 6]));
    let positions = f.add_scalar(f.iota(DType::S32.tensor([12]), 0), start as f64);
    let pages_of = Pages { array: latents, layer: f.scalar(1i32), table: table_in, trash: 40 };
    let limit = f.scalar((start + valid) as i32);
    let out = attend_chunk(&f, &pages_of, LORA as i64, q, positions, limit);
    f.ret(&[("out", out)]);
    let text = module.finish().unwrap().text;
    let latents = on_cpu::array(&cache.all, &[LAYERS, PAGES + 1, PAGE, WIDTH]);
    let table = on_cpu::array(&table(&pages), &[20]);
    let q = on_cpu::array(&queries, &[rows, HEADS, WIDTH]);
    let out: Vec<f32> = on_cpu::run(&text, &[&latents, &table, &q])[0].to_vec().unwrap();
    assert!(out.iter().all(|x| x.is_finite()));
    let wanted: Vec<f64> = (0..valid * HEADS)
        .flat_map(|at| attend(&queries[at * WIDTH..][..WIDTH], &tokens[..(start + at / HEADS + 1) * WIDTH]))
        .collect();
    assert_close(&out[..wanted.len()], &wanted);
}

#[test]
fn rows_of_a_batch_see_their_own_sequences_only() {
    let positions = [300i32, 0, 40];
    let pages: [Vec<i32>; 3] = [(0..10).map(|page| 39 - page).collect(), vec![5], vec![1, 0]];
    let mut cache = Cache::new();
    let tokens: Vec<Vec<f32>> =
        (0..3).map(|row| cache.write(&pages[row], positions[row] as usize + 1, row as u64 + 5)).collect();
    let queries = numbers(3 * HEADS * WIDTH, 9);

    let module = Module::new("batch");
    let f = module.main();
    let latents = f.input("latents", DType::F32.tensor([2, 41, 32, 6]));
    let table_in = f.input("table", DType::S32.tensor([3, 20]));
    let q = f.input("q", DType::F32.tensor([3, 1, 2, 6]));
    let at = f.input("positions", DType::S32.tensor([3, 1]));
    let pages_of = Pages { array: latents, layer: f.scalar(1i32), table: table_in, trash: 40 };
    f.ret(&[("out", attend_batch(&f, &pages_of, LORA as i64, q, at))]);
    let text = module.finish().unwrap().text;
    let latents = on_cpu::array(&cache.all, &[LAYERS, PAGES + 1, PAGE, WIDTH]);
    let tables: Vec<i32> = pages.iter().flat_map(|pages| table(pages)).collect();
    let (tables, q) = (on_cpu::array(&tables, &[3, 20]), on_cpu::array(&queries, &[3, 1, HEADS, WIDTH]));
    let at = on_cpu::array(&positions, &[3, 1]);
    let out: Vec<f32> = on_cpu::run(&text, &[&latents, &tables, &q, &at])[0].to_vec().unwrap();
    let wanted: Vec<f64> =
        (0..3 * HEADS).flat_map(|at| attend(&queries[at * WIDTH..][..WIDTH], &tokens[at / HEADS])).collect();
    assert_close(&out, &wanted);
}
