//! Sparse latent attention as it is defined, one row after another in double precision.

use std::collections::HashMap;

use model::ModelConfig;

/// Weights of one layer by role.
pub(super) struct Weights(pub(super) HashMap<String, (Vec<usize>, Vec<f32>)>);

impl Weights {
    fn row(&self, role: &str, row: usize) -> &[f32] {
        let (dims, values) = &self.0[role];
        let width = dims[dims.len() - 1];
        &values[row * width..(row + 1) * width]
    }

    /// Rows `from..from + count` of a matrix times `x`.
    fn times(&self, role: &str, from: usize, count: usize, x: &[f64]) -> Vec<f64> {
        let product = |row| self.row(role, row).iter().zip(x).map(|(&w, x)| f64::from(w) * x).sum();
        (from..from + count).map(product).collect()
    }

    fn scaled(&self, role: &str, x: &[f64], by: f64) -> Vec<f64> {
        self.row(role, 0).iter().zip(x).map(|(&w, x)| f64::from(w) * x * by).collect()
    }

    fn rms(&self, role: &str, x: &[f64], eps: f64) -> Vec<f64> {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        self.scaled(role, x, (mean + eps).powf(-0.5))
    }
}

/// What a layer keeps of a sequence's tokens.
pub(super) struct Sequence<'a> {
    config: &'a ModelConfig,
    weights: &'a Weights,
    latents: Vec<Vec<f64>>,
    keys: Vec<Vec<f64>>,
    scores: Vec<Vec<f64>>,
    inputs: Vec<Vec<f64>>,
    /// Of each complete pool.
    pub(super) pooled: Vec<Vec<f64>>,
}

impl<'a> Sequence<'a> {
    pub(super) fn new(config: &'a ModelConfig, weights: &'a Weights, rows: &[f32]) -> Self {
        let (mla, index) = (config.mla, config.mla.indexer.unwrap());
        let (latents, keys, scores, pooled) = Default::default();
        let inputs: Vec<Vec<f64>> =
            rows.chunks_exact(config.hidden).map(|x| x.iter().map(|&x| f64::from(x)).collect()).collect();
        let mut all = Self { config, weights, latents, keys, scores, inputs, pooled };
        for x in all.inputs.clone() {
            let raw = weights.times("mla.project", mla.q_lora.unwrap(), mla.kv_lora, &x);
            all.latents.push(weights.rms("mla.latent_norm", &raw, mla.norm_eps));
            let raw = weights.times("index.project", 0, index.dim, &x);
            let mean = raw.iter().sum::<f64>() / index.dim as f64;
            let centred: Vec<f64> = raw.iter().map(|x| x - mean).collect();
            let spread = centred.iter().map(|x| x * x).sum::<f64>() / index.dim as f64;
            let unit = weights.scaled("index.norm", &centred, (spread + 1e-6).powf(-0.5));
            let bias = weights.row("index.norm_bias", 0);
            all.keys.push(unit.iter().zip(bias).map(|(x, &b)| x + f64::from(b)).collect());
            all.scores.push(weights.times("index.project", index.dim, index.dim, &x));
        }
        for p in 0..all.keys.len() / index.pool {
            all.pooled
                .push((0..index.dim).map(|c| all.pooled_channel(p * index.pool, index.pool, c)).collect());
        }
        all
    }

    fn pooled_channel(&self, first: usize, pool: usize, c: usize) -> f64 {
        let weight =
            |i: usize| (self.scores[first + i][c] + f64::from(self.weights.row("index.places", i)[c])).exp();
        let total: f64 = (0..pool).map(weight).sum();
        (0..pool).map(|i| weight(i) / total * self.keys[first + i][c]).sum()
    }

    /// The tokens that the row at position `t` attends to.
    fn attended(&self, t: usize, compressed: &[f64]) -> Vec<usize> {
        let index = self.config.mla.indexer.unwrap();
        let complete = (t + 1) / index.pool;
        let queries = self.weights.times("index.query", 0, index.heads * index.dim, compressed);
        let weights = self.weights.times("index.project", 2 * index.dim, index.heads, &self.inputs[t]);
        let score = |p: usize| -> f64 {
            let met = |h: usize| -> f64 {
                let query = &queries[h * index.dim..(h + 1) * index.dim];
                query.iter().zip(&self.pooled[p]).map(|(a, b)| a * b).sum()
            };
            let scale = (index.heads as f64 * index.dim as f64).powf(-0.5);
            (0..index.heads).map(|h| weights[h] * scale * met(h).max(0.0)).sum()
        };
        let mut ranked: Vec<(f64, usize)> = (0..complete).map(|p| (score(p), p)).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        if ranked.len() > index.chosen {
            let gap = ranked[index.chosen - 1].0 - ranked[index.chosen].0;
            assert!(gap > 1e-6, "the choice at position {t} hangs on {gap:.0e}");
        }
        let chosen =
            ranked.iter().take(index.chosen).flat_map(|&(_, p)| p * index.pool..(p + 1) * index.pool);
        chosen.chain(complete * index.pool..t + 1).collect()
    }

    /// The layer's output for the row at position `t`.
    pub(super) fn output(&self, t: usize) -> Vec<f64> {
        let (mla, weights, x) = (self.config.mla, self.weights, &self.inputs[t]);
        let raw = weights.times("mla.project", 0, mla.q_lora.unwrap(), x);
        let compressed = weights.rms("mla.query_norm", &raw, mla.norm_eps);
        let tokens = self.attended(t, &compressed);
        let mut values = Vec::new();
        for h in 0..mla.heads {
            let query = weights.times("mla.query", h * mla.nope, mla.nope, &compressed);
            let score = |&s: &usize| {
                let key = weights.times("mla.key", h * mla.nope, mla.nope, &self.latents[s]);
                let met: f64 = query.iter().zip(&key).map(|(a, b)| a * b).sum();
                (met * (mla.nope as f64).powf(-0.5)).exp()
            };
            let shares: Vec<f64> = tokens.iter().map(score).collect();
            let total: f64 = shares.iter().sum();
            let mixed =
                |c: usize| tokens.iter().zip(&shares).map(|(&s, w)| w / total * self.latents[s][c]).sum();
            let mixed: Vec<f64> = (0..mla.kv_lora).map(mixed).collect();
            values.extend(weights.times("mla.value", h * mla.value, mla.value, &mixed));
        }
        weights.times("mla.out", 0, self.config.hidden, &values)
    }
}
