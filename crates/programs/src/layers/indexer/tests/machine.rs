//! One layer of sparse attention, its programs and its state.

use std::collections::HashMap;

use model::ModelConfig;
use model::weights::{Float, Formats, weights};
use pjrt::Buffer;
use stablehlo::{DType, Func, Module, Value};

use super::reference::Weights;
use crate::decode::Batch;
use crate::layers::{Layer, Matrix, Phase, State};
use crate::prefill::Chunk;
use crate::program::array;
use crate::{Output, ShapeLadder, StateArray, on_cpu};

const ARRAYS: [StateArray; 3] = [StateArray::Latents, StateArray::IndexKeys, StateArray::IndexRing];

/// Uniform numbers in (-1, 1).
pub(super) fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// A model whose third and fourth layers are sparse attention; the fourth is run.
pub(super) fn config(pool: usize, chosen: usize) -> ModelConfig {
    let text = serde_json::json!({
        "model_type": "glm5_next", "vocab_size": 8, "hidden_size": 8, "intermediate_size": 8,
        "moe_intermediate_size": 8, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 2,
        "layer_types": ["linear_attention", "linear_attention", "indexed_attention", "indexed_attention"],
        "mlp_layer_types": ["dense", "dense", "dense", "dense"], "first_k_dense_replace": 4,
        "linear_num_heads": 2, "linear_head_dim": 4, "linear_conv_kernel_dim": 4,
        "q_lora_rank": 7, "kv_lora_rank": 5, "qk_nope_head_dim": 4, "qk_rope_head_dim": 0, "v_head_dim": 3,
        "index_n_heads": 16, "index_head_dim": 6, "index_topk": pool * chosen, "index_kpool": pool,
        "n_routed_experts": 2, "num_experts_per_tok": 1, "n_shared_experts": 1,
        "max_position_embeddings": 4096, "eos_token_id": 2, "bos_token_id": 1, "hc_mult": 2,
    });
    ModelConfig::from_json(&text.to_string()).unwrap()
}

pub(super) fn layer_weights(config: &ModelConfig) -> Weights {
    let mut all = HashMap::new();
    for (seed, spec) in weights(config, &Formats::default()).iter().enumerate() {
        let Some((_, role)) = spec.name.split_once("layers.3.") else { continue };
        if role.starts_with("mla.") || role.starts_with("index.") {
            let scale = 2.0 / (spec.dims[spec.dims.len() - 1] as f32).sqrt();
            let values = numbers(spec.elements(), seed as u64 + 50).iter().map(|x| x * scale).collect();
            all.insert(role.to_owned(), (spec.dims.clone(), values));
        }
    }
    Weights(all)
}

/// What a call does with its rows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Does {
    Attend,
    /// Caches them alone.
    Cache,
}

/// Makes a phase of a call's inputs.
type Build<'a> = dyn Fn(&Func, &[Value], &ShapeLadder) -> Box<dyn Phase> + 'a;

/// The layer, with all state NaN at first.
pub(super) struct Machine<'a> {
    config: &'a ModelConfig,
    ladder: &'a ShapeLadder,
    weights: Vec<(String, Buffer)>,
    state: Vec<Buffer>,
    programs: HashMap<(&'static str, Does), pjrt::Executable>,
}

impl<'a> Machine<'a> {
    pub(super) fn new(config: &'a ModelConfig, ladder: &'a ShapeLadder, weights: &Weights) -> Self {
        let weights =
            weights.0.iter().map(|(role, (dims, x))| (role.clone(), on_cpu::array(x, dims))).collect();
        let state = ARRAYS.map(|array| {
            let ty = array.ty(&config.state(), ladder);
            let dims: Vec<usize> = ty.dims.iter().map(|&dim| dim as usize).collect();
            on_cpu::array(&vec![f32::NAN; ty.elements() as usize], &dims)
        });
        Self { config, ladder, weights, state: state.into(), programs: HashMap::new() }
    }

    /// Runs the next `valid` of `rows [C, hidden]`: outputs, and the pooled keys that are handed out.
    pub(super) fn chunk(
        &mut self,
        does: Does,
        rows: &[f32],
        [valid, start, slot]: [i32; 3],
        table: &[i32],
    ) -> (Vec<f32>, Vec<f32>) {
        let length = rows.len() / self.config.hidden;
        let scalars = [valid, start, slot].map(|x| on_cpu::array(&[x], &[]));
        let table = on_cpu::array(table, &[table.len()]);
        let inputs = [&scalars[0], &scalars[1], &scalars[2], &table];
        let build = |f: &Func, inputs: &[Value], ladder: &ShapeLadder| -> Box<dyn Phase> {
            Box::new(Chunk::new(f, ladder, length as i64, [inputs[0], inputs[1], inputs[2]], inputs[3]))
        };
        self.run("chunk", does, rows, &inputs, &build)
    }

    /// Runs windows `rows [B, T, hidden]` from `positions [B]` on, of which the first `kept [B]` count if only caching.
    pub(super) fn window(
        &mut self,
        does: Does,
        rows: &[f32],
        [positions, slots, kept]: [&[i32]; 3],
        tables: &[i32],
    ) -> Vec<f32> {
        let batch = positions.len();
        let cells = [batch as i64, (rows.len() / self.config.hidden / batch) as i64];
        let columns = [positions, slots, kept].map(|x| on_cpu::array(x, &[batch]));
        let tables = on_cpu::array(tables, &[batch, tables.len() / batch]);
        let inputs = [&columns[0], &columns[1], &columns[2], &tables];
        let build = |f: &Func, inputs: &[Value], ladder: &ShapeLadder| -> Box<dyn Phase> {
            let place = f.iota(DType::S32.tensor(cells), 1);
            let wide = |x: Value| f.broadcast_in_dim(x, &cells, &[0]);
            let batch = Batch::new(f, ladder, f.add(wide(inputs[0]), place), inputs[1], inputs[3]);
            if does == Does::Attend {
                return Box::new(batch);
            }
            Box::new(batch.only(f, f.lt(place, wide(inputs[2]))))
        };
        self.run("window", does, rows, &inputs, &build).0
    }

    fn run(
        &mut self,
        name: &'static str,
        does: Does,
        rows: &[f32],
        inputs: &[&Buffer],
        build: &Build<'_>,
    ) -> (Vec<f32>, Vec<f32>) {
        let hidden = self.config.hidden;
        let x = on_cpu::array(rows, &[rows.len() / hidden, hidden]);
        if !self.programs.contains_key(&(name, does)) {
            let text = self.text(does, rows.len() / hidden, inputs, build);
            self.programs.insert((name, does), on_cpu::compile(&text));
        }
        let mut all: Vec<&Buffer> = self.weights.iter().map(|(_, buffer)| buffer).collect();
        all.extend(&self.state);
        all.push(&x);
        all.extend(inputs);
        let mut results = self.programs[&(name, does)].execute(&all).unwrap();
        let rest = results.split_off(3);
        self.state = results;
        (rest[0].to_vec().unwrap(), rest[1].to_vec().unwrap())
    }

    fn text(&self, does: Does, rows: usize, inputs: &[&Buffer], build: &Build<'_>) -> String {
        let (config, shape) = (self.config, self.config.state());
        let module = Module::new("layer");
        let f = module.main();
        let dims_of = |buffer: &Buffer| buffer.dims().to_vec();
        let mut weights = HashMap::new();
        for (role, buffer) in &self.weights {
            weights.insert(role.as_str(), f.input(role, DType::F32.tensor(dims_of(buffer))));
        }
        let arrays = ARRAYS.map(|what| (what, f.input(&format!("{what:?}"), what.ty(&shape, self.ladder))));
        let x = f.input("x", array(DType::F32, &[rows, config.hidden]));
        let names = ["a", "b", "c", "d"].iter().zip(inputs);
        let inputs: Vec<Value> =
            names.map(|(name, buffer)| f.input(name, DType::S32.tensor(dims_of(buffer)))).collect();
        let index = shape.index.unwrap();
        let keys =
            f.splat(7f32, &[shape.latent_layers as i64, (rows / index.pool + 1) as i64, index.dim as i64]);
        let mut state = State::new(arrays.to_vec(), vec![(Output::ChunkKeys, keys)]);
        let phase = build(&f, &inputs, self.ladder);
        let find = |_: &Func, role: &str| weights[role];
        let matrix = |f: &Func, role: &str, at: &[Value]| Matrix::Float(weights[role]).member(f, at);
        let formats = Formats::default();
        let layer = Layer {
            f: &f,
            config,
            formats: &formats,
            share: crate::mesh::Share::of_one(),
            weight: &find,
            matrix: &matrix,
            index: f.scalar(1i32),
        };
        let out = match does {
            Does::Attend => phase.mla(&layer, x, &mut state),
            Does::Cache => {
                phase.cache(&layer, x, &mut state);
                x
            }
        };
        let values = state.values();
        f.ret(&[("0", values[0]), ("1", values[1]), ("2", values[2]), ("out", out), ("keys", values[3])]);
        module.finish().unwrap().text
    }
}

pub(super) fn ladder(context: u32, page_tokens: u32, drafts: u32) -> ShapeLadder {
    let pages = 3 * context.div_ceil(page_tokens) + 5;
    let (chunks, batches) = (vec![8], vec![2]);
    ShapeLadder {
        chunks,
        batches,
        context,
        page_tokens,
        pages,
        slots: 4,
        drafts,
        latents: Float::F32,
        lane: 1,
    }
}
