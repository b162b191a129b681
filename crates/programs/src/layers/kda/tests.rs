use stablehlo::{DType, Module};

use super::{Window, chunked, recover, step, window};
use crate::on_cpu;

/// One head's worth of a sequence after another: inputs of the recurrence, in the layout of the program.
struct Case {
    tokens: usize,
    heads: usize,
    dim: usize,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    decay: Vec<f32>,
    beta: Vec<f32>,
    state: Vec<f32>,
}

/// Uniform numbers in (-1, 1).
fn noise(seed: u64) -> impl FnMut() -> f32 {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

impl Case {
    /// Random inputs; `decay` makes a log decay from a uniform number and the token, `alike` is how much of each key is
    /// the same for all tokens.
    fn new(tokens: usize, heads: usize, dim: usize, alike: f32, decay: impl Fn(f32, usize) -> f32) -> Self {
        let mut random = noise(tokens as u64 + 7);
        let common: Vec<f32> = (0..heads * dim).map(|_| random()).collect();
        let mut unit = |share: f32, scale: f32| {
            let mut all = Vec::new();
            for row in 0..tokens * heads {
                let at = row % heads * dim;
                let x: Vec<f32> =
                    (0..dim).map(|c| share * common[at + c] + (1.0 - share) * random()).collect();
                let norm = x.iter().map(|x| x * x).sum::<f32>().sqrt();
                all.extend(x.iter().map(|x| x / norm * scale));
            }
            all
        };
        let (k, q) = (unit(alike, 1.0), unit(0.0, (dim as f32).powf(-0.5)));
        let width = heads * dim;
        let decay = (0..tokens * width).map(|at| decay(random(), at / width)).collect();
        let mut uniform = |n: usize| (0..n).map(|_| random()).collect::<Vec<f32>>();
        let v = uniform(tokens * width);
        let beta = uniform(tokens * heads).iter().map(|x| 1.0 / (1.0 + (-2.0 - 3.0 * x).exp())).collect();
        Self { tokens, heads, dim, q, k, v, decay, beta, state: uniform(width * dim) }
    }

    /// Token by token in double precision: outputs and the last state.
    fn reference(&self) -> (Vec<f64>, Vec<f64>) {
        let (heads, dim) = (self.heads, self.dim);
        let mut state: Vec<f64> = self.state.iter().map(|&x| f64::from(x)).collect();
        let mut output = vec![0.0; self.tokens * heads * dim];
        for (row, out) in output.chunks_exact_mut(dim).enumerate() {
            let head = row % heads;
            let at = |x: &[f32], c: usize| f64::from(x[row * dim + c]);
            let s = &mut state[head * dim * dim..(head + 1) * dim * dim];
            for c in 0..dim {
                let kept = at(&self.decay, c).exp();
                s[c * dim..(c + 1) * dim].iter_mut().for_each(|x| *x *= kept);
            }
            for j in 0..dim {
                let recalled: f64 = (0..dim).map(|c| s[c * dim + j] * at(&self.k, c)).sum();
                let written = f64::from(self.beta[row]) * (at(&self.v, j) - recalled);
                for c in 0..dim {
                    s[c * dim + j] += at(&self.k, c) * written;
                }
                out[j] = (0..dim).map(|c| s[c * dim + j] * at(&self.q, c)).sum();
            }
        }
        (output, state)
    }

    fn run(&self) -> (Vec<f32>, Vec<f32>) {
        let (tokens, heads, dim) = (self.tokens, self.heads, self.dim);
        let module = Module::new("kda");
        let f = module.main();
        let wide = DType::F32.tensor([tokens as i64, heads as i64, dim as i64]);
        let [q, k, v, decay] = ["q", "k", "v", "decay"].map(|name| f.input(name, wide.clone()));
        let beta = f.input("beta", DType::F32.tensor([tokens as i64, heads as i64]));
        let state = f.input("state", DType::F32.tensor([heads as i64, dim as i64, dim as i64]));
        let (output, after) = chunked(&f, [q, k, v], decay, beta, state);
        f.ret(&[("output", output), ("after", after)]);
        let text = module.finish().unwrap().text;
        let array = |x: &[f32]| on_cpu::array(x, &[tokens, heads, dim]);
        let beta = on_cpu::array(&self.beta, &[tokens, heads]);
        let state = on_cpu::array(&self.state, &[heads, dim, dim]);
        let [q, k, v, decay] = [&self.q, &self.k, &self.v, &self.decay].map(|x| array(x));
        let out = on_cpu::run(&text, &[&q, &k, &v, &decay, &beta, &state]);
        (out[0].to_vec().unwrap(), out[1].to_vec().unwrap())
    }
}

/// Norm of the difference over the norm.
fn distance(got: &[f32], wanted: &[f64]) -> f64 {
    assert_eq!(got.len(), wanted.len());
    let difference: f64 = got.iter().zip(wanted).map(|(&a, b)| (f64::from(a) - b).powi(2)).sum();
    (difference / wanted.iter().map(|x| x * x).sum::<f64>()).sqrt()
}

#[test]
fn a_chunk_equals_its_tokens_one_by_one_in_every_decay_regime() {
    let soft = |x: f32, _: usize| -0.5 * (2.0 * x).exp();
    let cases = [
        ("typical", Case::new(200, 2, 16, 0.0, soft)),
        ("strong", Case::new(128, 2, 16, 0.5, |x, _| -20.0 + x)),
        ("slow, keys alike", Case::new(192, 2, 32, 0.7, |x, _| -1e-4 * (x + 1.0))),
        (
            "forgets all once in a while",
            Case::new(130, 3, 16, 0.3, |x, t| if t % 13 == 5 { -900.0 } else { 0.02 * (x - 1.0) }),
        ),
        ("every gate at its bound", Case::new(96, 2, 16, 0.3, |_, _| -5.0)),
        ("near no decay, keys alike, long", Case::new(4096, 1, 16, 0.9, |x, _| -1e-5 * (x + 1.0))),
        (
            "gates between the bound and nothing, long",
            Case::new(4096, 1, 16, 0.3, |x, t| if t % 2 == 0 { -5.0 } else { -0.01 * (x + 1.0) }),
        ),
        ("one token", Case::new(1, 2, 16, 0.0, soft)),
        ("less than a tile", Case::new(21, 2, 16, 0.0, soft)),
    ];
    for (name, case) in cases {
        let (output, state) = case.run();
        let (wanted, last) = case.reference();
        let (a, b) = (distance(&output, &wanted), distance(&state, &last));
        println!("{name}: output {a:.1e}, state {b:.1e}");
        assert!(a < 2e-6 && b < 2e-6, "{name}: output differs by {a:.1e}, state by {b:.1e}");
    }
}

#[test]
fn padding_changes_nothing_to_the_last_bit() {
    let mut padded = Case::new(64, 2, 16, 0.3, |x, _| -0.2 * (x + 1.0));
    let real = 37;
    padded.decay[real * 32..].fill(0.0);
    padded.beta[real * 2..].fill(0.0);
    let (_, once) = padded.run();
    // The same first tokens with other padding content.
    let mut other = Case::new(64, 2, 16, 0.9, |x, _| -0.2 * (x + 1.0));
    for (into, from) in [(&mut other.q, &padded.q), (&mut other.k, &padded.k), (&mut other.v, &padded.v)] {
        into[..real * 32].copy_from_slice(&from[..real * 32]);
    }
    (other.decay, other.beta, other.state) =
        (padded.decay.clone(), padded.beta.clone(), padded.state.clone());
    assert_eq!(once, other.run().1);
}

#[test]
fn a_step_equals_one_token_of_each_sequence() {
    let case = Case::new(1, 6, 16, 0.0, |x, _| -0.5 * (2.0 * x).exp());
    let module = Module::new("step");
    let f = module.main();
    // Heads of one sequence are independent, so six heads are three sequences of two.
    let row = DType::F32.tensor([3, 2, 16]);
    let [q, k, v, decay] = ["q", "k", "v", "decay"].map(|name| f.input(name, row.clone()));
    let beta = f.input("beta", DType::F32.tensor([3, 2]));
    let state = f.input("state", DType::F32.tensor([3, 2, 16, 16]));
    let (output, after) = step(&f, [q, k, v], decay, beta, state);
    f.ret(&[("output", output), ("after", after)]);
    let text = module.finish().unwrap().text;
    let [q, k, v, decay] = [&case.q, &case.k, &case.v, &case.decay].map(|x| on_cpu::array(x, &[3, 2, 16]));
    let (beta, state) = (on_cpu::array(&case.beta, &[3, 2]), on_cpu::array(&case.state, &[3, 2, 16, 16]));
    let out = on_cpu::run(&text, &[&q, &k, &v, &decay, &beta, &state]);
    let (wanted, last) = case.reference();
    assert!(distance(&out[0].to_vec().unwrap(), &wanted) < 1e-6);
    assert!(distance(&out[1].to_vec().unwrap(), &last) < 1e-6);
}

/// Windows of five tokens of two sequences, one head each, as cases of one head; the counts that are taken over.
#[test]
fn a_window_equals_its_tokens_one_by_one_and_moves_the_state_over_those_that_count() {
    for bound in [-5.0f32, -0.3, -1e-4] {
        let cases = [0.2, 0.9].map(|alike| Case::new(5, 1, 16, alike, move |x, _| bound * (x + 1.0) / 2.0));
        let module = Module::new("window");
        let f = module.main();
        let wide = DType::F32.tensor([2, 5, 1, 16]);
        let [q, k, v, decay] = ["q", "k", "v", "decay"].map(|name| f.input(name, wide.clone()));
        let beta = f.input("beta", DType::F32.tensor([2, 5, 1]));
        let state = f.input("state", DType::F32.tensor([2, 1, 16, 16]));
        let count = f.input("count", DType::S32.tensor([2]));
        let (output, written) = window(&f, [q, k, v], decay, beta, state);
        let Window { keys, decay: gates, written: values } = written;
        let after = recover(&f, &Window { keys, decay: gates, written: values }, count, state);
        f.ret(&[("output", output), ("after", after)]);
        let program = on_cpu::compile(&module.finish().unwrap().text);
        let both = |part: fn(&Case) -> &Vec<f32>| [part(&cases[0]).clone(), part(&cases[1]).clone()].concat();
        let arrays = [
            on_cpu::array(&both(|case| &case.q), &[2, 5, 1, 16]),
            on_cpu::array(&both(|case| &case.k), &[2, 5, 1, 16]),
            on_cpu::array(&both(|case| &case.v), &[2, 5, 1, 16]),
            on_cpu::array(&both(|case| &case.decay), &[2, 5, 1, 16]),
            on_cpu::array(&both(|case| &case.beta), &[2, 5, 1]),
            on_cpu::array(&both(|case| &case.state), &[2, 1, 16, 16]),
        ];
        for counts in [[0i32, 5], [1, 2], [3, 4]] {
            let count = on_cpu::array(&counts, &[2]);
            let arguments: Vec<_> = arrays.iter().chain([&count]).collect();
            let out = program.execute(&arguments).unwrap();
            let (output, after): (Vec<f32>, Vec<f32>) = (out[0].to_vec().unwrap(), out[1].to_vec().unwrap());
            for (at, (case, count)) in cases.iter().zip(counts).enumerate() {
                let off = distance(&output[at * 80..(at + 1) * 80], &case.reference().0);
                assert!(off < 1e-6, "decay {bound}: outputs differ by {off:.1e}");
                let after = &after[at * 256..(at + 1) * 256];
                if count == 0 {
                    assert_eq!(after, case.state);
                    continue;
                }
                let mut part = Case::new(0, 1, 16, 0.0, |_, _| 0.0);
                let rows = count as usize * 16;
                part.tokens = count as usize;
                (part.q, part.k, part.v) =
                    (case.q[..rows].to_vec(), case.k[..rows].to_vec(), case.v[..rows].to_vec());
                (part.decay, part.beta) = (case.decay[..rows].to_vec(), case.beta[..count as usize].to_vec());
                part.state = case.state.clone();
                let off = distance(after, &part.reference().1);
                assert!(off < 1e-6, "decay {bound}, {count} tokens: states differ by {off:.1e}");
            }
        }
    }
}
