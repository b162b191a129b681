use std::collections::HashMap;

use model::weights::Formats;
use model::{Activation, Family, Kda, Mla, ModelConfig, Moe, Residual};
use stablehlo::{DType, Func, Module, Value};

use super::moe;
use crate::layers::{Layer, Matrix};
use crate::mesh::Share;
use crate::on_cpu;

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

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Weights in the layout of the program, and rows to run.
struct Case {
    shape: Moe,
    rows: usize,
    hidden: usize,
    x: Vec<f32>,
    router: Vec<f32>,
    bias: Vec<f32>,
    /// `[experts, 2 * inner, hidden]`.
    enter: Vec<f32>,
    /// `[hidden, experts, inner]`, or `[experts, hidden, inner]` where tokens are grouped.
    leave: Vec<f32>,
    /// `[2 * shared * inner, hidden]` and `[hidden, shared * inner]`.
    shared: [Vec<f32>; 2],
}

impl Case {
    fn new(shape: Moe, rows: usize) -> Self {
        let hidden = 12;
        let all = shape.experts;
        let inner = shape.shared * shape.inner;
        Self {
            rows,
            hidden,
            x: numbers(rows * hidden, 1),
            router: numbers(shape.experts * hidden, 2),
            bias: numbers(shape.experts, 3).iter().map(|x| 0.1 * x).collect(),
            enter: numbers(all * 2 * shape.inner * hidden, 4),
            leave: numbers(hidden * all * shape.inner, 5),
            shared: [numbers(2 * inner * hidden, 6), numbers(hidden * inner, 7)],
            shape,
        }
    }

    /// Row by row and expert by expert.
    fn reference(&self) -> Vec<f64> {
        let Moe { experts, top_k, shared, inner, scale, renormalise, .. } = self.shape;
        let mut out = Vec::new();
        for x in self.x.chunks_exact(self.hidden) {
            let score: Vec<f64> = self.router.chunks_exact(self.hidden).map(|w| sigmoid(dot(w, x))).collect();
            let mut order: Vec<usize> = (0..experts).collect();
            let biased = |e: usize| score[e] + f64::from(self.bias[e]);
            order.sort_by(|&a, &b| biased(b).total_cmp(&biased(a)));
            let total: f64 = if renormalise { order[..top_k].iter().map(|&e| score[e]).sum() } else { 1.0 };
            let mut row = vec![0.0; self.hidden];
            for &e in &order[..top_k] {
                let enter = &self.enter[e * 2 * inner * self.hidden..];
                let leave = |c: usize, i: usize| match self.shape.is_grouped() {
                    true => self.leave[(e * self.hidden + c) * inner + i],
                    false => self.leave[(c * experts + e) * inner + i],
                };
                self.add(&mut row, x, (enter, inner), score[e] / total * scale, leave);
            }
            let inner = shared * inner;
            self.add(&mut row, x, (&self.shared[0], inner), 1.0, |c, i| self.shared[1][c * inner + i]);
            out.extend(row);
        }
        out
    }

    /// Adds one gated network's output.
    fn add(
        &self,
        row: &mut [f64],
        x: &[f32],
        (enter, inner): (&[f32], usize),
        weight: f64,
        leave: impl Fn(usize, usize) -> f32,
    ) {
        let unit = |at: usize| dot(&enter[at * self.hidden..][..self.hidden], x);
        for i in 0..inner {
            let active = unit(i) * sigmoid(unit(i)) * unit(inner + i);
            for (c, sum) in row.iter_mut().enumerate() {
                *sum += weight * active * f64::from(leave(c, i));
            }
        }
    }

    fn run(&self) -> Vec<f32> {
        let (all, inner) = (self.shape.experts, self.shape.shared * self.shape.inner);
        let leave = match self.shape.is_grouped() {
            true => vec![all, self.hidden, self.shape.inner],
            false => vec![self.hidden, all, self.shape.inner],
        };
        let arrays = [
            ("x", &self.x, vec![self.rows, self.hidden]),
            ("moe.router", &self.router, vec![self.shape.experts, self.hidden]),
            ("moe.bias", &self.bias, vec![self.shape.experts]),
            ("moe.in", &self.enter, vec![all, 2 * self.shape.inner, self.hidden]),
            ("moe.out", &self.leave, leave),
            ("shared.in", &self.shared[0], vec![2 * inner, self.hidden]),
            ("shared.out", &self.shared[1], vec![self.hidden, inner]),
        ];
        let module = Module::new("moe");
        let f = module.main();
        let values: HashMap<&str, Value> = arrays
            .iter()
            .map(|(name, _, dims)| {
                let dims: Vec<i64> = dims.iter().map(|&dim| dim as i64).collect();
                (*name, f.input(name, DType::F32.tensor(dims)))
            })
            .collect();
        let weight = |_: &Func, role: &str| values[role];
        let matrix = |f: &Func, role: &str, at: &[Value]| Matrix::Float(values[role]).member(f, at);
        let (config, formats) = (config(), Formats::default());
        let index = f.scalar(0i32);
        let layer = Layer {
            f: &f,
            config: &config,
            formats: &formats,
            share: Share::of_one(),
            weight: &weight,
            matrix: &matrix,
            index,
        };
        let out = moe(&layer, &self.shape, values["x"]);
        f.ret(&[("out", out)]);
        let text = module.finish().unwrap().text;
        let buffers: Vec<_> = arrays.iter().map(|(_, data, dims)| on_cpu::array(data, dims)).collect();
        on_cpu::run(&text, &buffers.iter().collect::<Vec<_>>())[0].to_vec().unwrap()
    }
}

/// Nothing of it matters to a feed-forward layer.
fn config() -> ModelConfig {
    ModelConfig {
        family: Family::KimiLinear,
        vocabulary: 1,
        hidden: 1,
        layers: Vec::new(),
        kda: Kda { heads: 1, dim: 1, conv_kernel: 2, decay_bound: None, full_gate: false },
        mla: Mla {
            heads: 1,
            kv_lora: 1,
            rope: 1,
            nope: 1,
            value: 1,
            q_lora: None,
            gated: false,
            norm_eps: 1e-6,
            indexer: None,
        },
        dense_inner: 1,
        moe: None,
        activation: Activation::Swiglu,
        residual: Residual::Sum,
        mtp: None,
        rms_eps: 1e-5,
        context: 1,
        eos: Vec::new(),
        bos: None,
        tied: false,
    }
}

#[test]
fn experts_in_tiles_and_all_at_once_equal_one_by_one() {
    let shape = |experts, top_k, shared, renormalise| Moe {
        experts,
        top_k,
        shared,
        inner: 5,
        scale: 1.7,
        renormalise,
        latent: None,
    };
    let cases = [
        ("all at once", shape(6, 2, 1, true), 9),
        ("all at once, nothing shared", shape(4, 3, 0, false), 2),
        ("tiles", shape(16, 2, 2, true), 70),
        ("tiles, few rows", shape(24, 3, 0, false), 2),
        ("tiles, more experts than are compared in pairs", shape(80, 4, 1, true), 33),
    ];
    for (name, shape, rows) in cases {
        let case = Case::new(shape, rows);
        let (got, wanted) = (case.run(), case.reference());
        let scale = wanted.iter().map(|x| x * x).sum::<f64>().sqrt();
        let off: f64 = got.iter().zip(&wanted).map(|(&a, b)| (f64::from(a) - b).powi(2)).sum();
        assert!(off.sqrt() / scale < 1e-6, "{name}: differs by {:.1e}", off.sqrt() / scale);
    }
}
