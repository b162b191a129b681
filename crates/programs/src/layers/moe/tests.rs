use std::collections::HashMap;

use model::{Kda, Mla, ModelConfig, Moe};
use stablehlo::{DType, Func, Module, Value};

use super::moe;
use crate::layers::Layer;
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
    enter: Vec<f32>,
    leave: Vec<f32>,
}

impl Case {
    fn new(shape: Moe, rows: usize) -> Self {
        let hidden = 12;
        let all = shape.experts + shape.shared;
        Self {
            rows,
            hidden,
            x: numbers(rows * hidden, 1),
            router: numbers(shape.experts * hidden, 2),
            bias: numbers(shape.experts, 3).iter().map(|x| 0.1 * x).collect(),
            enter: numbers(all * 2 * shape.inner * hidden, 4),
            leave: numbers(hidden * all * shape.inner, 5),
            shape,
        }
    }

    /// Row by row and expert by expert.
    fn reference(&self) -> Vec<f64> {
        let Moe { experts, top_k, shared, inner, scale, renormalise } = self.shape;
        let mut out = Vec::new();
        for x in self.x.chunks_exact(self.hidden) {
            let score: Vec<f64> = self.router.chunks_exact(self.hidden).map(|w| sigmoid(dot(w, x))).collect();
            let mut order: Vec<usize> = (0..experts).collect();
            let biased = |e: usize| score[e] + f64::from(self.bias[e]);
            order.sort_by(|&a, &b| biased(b).total_cmp(&biased(a)));
            let total: f64 = if renormalise { order[..top_k].iter().map(|&e| score[e]).sum() } else { 1.0 };
            let routed = order[..top_k].iter().map(|&e| (e, score[e] / total * scale));
            let mut row = vec![0.0; self.hidden];
            for (e, weight) in routed.chain((experts..experts + shared).map(|e| (e, 1.0))) {
                let unit =
                    |at: usize| dot(&self.enter[(e * 2 * inner + at) * self.hidden..][..self.hidden], x);
                for i in 0..inner {
                    let active = unit(i) * sigmoid(unit(i)) * unit(inner + i);
                    for (c, sum) in row.iter_mut().enumerate() {
                        *sum +=
                            weight * active * f64::from(self.leave[(c * (experts + shared) + e) * inner + i]);
                    }
                }
            }
            out.extend(row);
        }
        out
    }

    fn run(&self) -> Vec<f32> {
        let all = self.shape.experts + self.shape.shared;
        let arrays = [
            ("x", &self.x, vec![self.rows, self.hidden]),
            ("moe.router", &self.router, vec![self.shape.experts, self.hidden]),
            ("moe.bias", &self.bias, vec![self.shape.experts]),
            ("moe.in", &self.enter, vec![all, 2 * self.shape.inner, self.hidden]),
            ("moe.out", &self.leave, vec![self.hidden, all, self.shape.inner]),
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
        let config = config();
        let layer = Layer { f: &f, config: &config, weight: &weight, index: f.scalar(0i32) };
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
        name: String::new(),
        vocabulary: 1,
        hidden: 1,
        layers: Vec::new(),
        kda: Kda { heads: 1, dim: 1, conv_kernel: 2 },
        mla: Mla { heads: 1, kv_lora: 1, rope: 1, nope: 1, value: 1, q_lora: None },
        dense_inner: 1,
        moe: None,
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
