//! Weights of the Kimi-Linear family.
//!
//! Per layer, the matrices that read the normed residual stream are joined by rows: one product gives query, key,
//! value, decay and gate inputs. The key and value halves of `kv_b_proj` are told apart for the absorbed form. Experts'
//! output matrices stand side by side, so that all experts together are one product.

use crate::weights::{Source, WeightSpec};
use crate::{Attention, Ffn, Fold, ModelConfig, Moe, Place};

/// One weight of one layer, before stacking.
struct Part {
    role: &'static str,
    dims: Vec<usize>,
    source: Source,
}

impl Part {
    fn new(role: &'static str, dims: &[usize], source: Source) -> Self {
        Self { role, dims: dims.to_vec(), source }
    }
}

pub(super) fn weights(config: &ModelConfig) -> Vec<WeightSpec> {
    let (vocabulary, hidden) = (config.vocabulary, config.hidden);
    let embedding = tensor("model.embed_tokens.weight", &[vocabulary, hidden]);
    let head = if config.tied { embedding.clone() } else { tensor("lm_head.weight", &[vocabulary, hidden]) };
    let norm = tensor("model.norm.weight", &[hidden]);
    let top = |name: &str, dims: &[usize], source| WeightSpec {
        name: name.to_owned(),
        dims: dims.to_vec(),
        source,
    };
    let mut all = vec![top("embedding", &[vocabulary, hidden], embedding)];
    let fold = config.fold();
    for place in fold.places() {
        all.extend(at_place(config, &fold, place));
    }
    all.push(top("final_norm", &[hidden], norm));
    all.push(top("head", &[vocabulary, hidden], head));
    all
}

/// The weights of one body: those of a layer, or of a member of the repeated group stacked over the repetitions.
fn at_place(config: &ModelConfig, fold: &Fold, place: Place) -> Vec<WeightSpec> {
    let layers = fold.layers_at(place);
    let mut stacks: Vec<Vec<Part>> = layers.iter().map(|&layer| layer_parts(config, layer)).collect();
    let Some(first) = stacks.first() else {
        return Vec::new();
    };
    let roles = first.len();
    let mut specs = Vec::with_capacity(roles);
    for _ in 0..roles {
        let column: Vec<Part> = stacks.iter_mut().map(|parts| parts.remove(0)).collect();
        let Some(head) = column.first() else { continue };
        let name = format!("{place}.{}", head.role);
        let mut dims = head.dims.clone();
        if matches!(place, Place::Repeated(_)) {
            dims.insert(0, layers.len());
        }
        let source = Source::Join(column.into_iter().map(|part| part.source).collect());
        specs.push(WeightSpec { name, dims, source });
    }
    specs
}

fn layer_parts(config: &ModelConfig, layer: usize) -> Vec<Part> {
    let hidden = config.hidden;
    let at = format!("model.layers.{layer}");
    let norm = |name: &str| tensor(&format!("{at}.{name}.weight"), &[hidden]);
    let mut parts = vec![Part::new("attention_norm", &[hidden], norm("input_layernorm"))];
    let kind = config.layers[layer];
    match kind.attention {
        Attention::Kda => kda(config, &format!("{at}.self_attn"), &mut parts),
        Attention::Mla => mla(config, &format!("{at}.self_attn"), &mut parts),
    }
    parts.push(Part::new("ffn_norm", &[hidden], norm("post_attention_layernorm")));
    match (kind.ffn, &config.moe) {
        (Ffn::Moe, Some(moe)) => moe_parts(moe, hidden, &at, &mut parts),
        _ => dense(&at, config.dense_inner, hidden, &mut parts),
    }
    parts
}

fn kda(config: &ModelConfig, at: &str, parts: &mut Vec<Part>) {
    let (hidden, heads, dim) = (config.hidden, config.kda.heads, config.kda.dim);
    let (width, taps) = (config.kda.width(), config.kda.conv_kernel);
    let forget = |name: &str, dims: &[usize]| {
        Source::tensor([format!("{at}.forget_gate.{name}"), format!("{at}.{name}")], dims)
    };
    let matrix = |name: &str, dims: &[usize]| tensor(&format!("{at}.{name}.weight"), dims);
    let project = Source::Join(vec![
        matrix("q_proj", &[width, hidden]),
        matrix("k_proj", &[width, hidden]),
        matrix("v_proj", &[width, hidden]),
        forget("f_a_proj.weight", &[dim, hidden]),
        matrix("g_a_proj", &[dim, hidden]),
        matrix("b_proj", &[heads, hidden]),
    ]);
    let expand =
        Source::Join(vec![forget("f_b_proj.weight", &[width, dim]), matrix("g_b_proj", &[width, dim])]);
    let split = ["q_conv1d", "k_conv1d", "v_conv1d"].map(|name| matrix(name, &[width, 1, taps]));
    let conv = Source::Either(vec![matrix("conv1d", &[3 * width, 1, taps]), Source::Join(split.into())]);
    parts.extend([
        Part::new("kda.project", &[3 * width + 2 * dim + heads, hidden], project),
        Part::new("kda.conv", &[3 * width, taps], conv),
        Part::new("kda.expand", &[2, width, dim], expand),
        Part::new("kda.dt_bias", &[width], forget("dt_bias", &[width])),
        Part::new("kda.a_log", &[heads], forget("A_log", &[heads])),
        Part::new("kda.norm", &[dim], matrix("o_norm", &[dim])),
        Part::new("kda.out", &[hidden, width], matrix("o_proj", &[hidden, width])),
    ]);
}

fn mla(config: &ModelConfig, at: &str, parts: &mut Vec<Part>) {
    let (hidden, mla) = (config.hidden, &config.mla);
    let query = mla.heads * mla.query_width();
    let latent = mla.latent_width();
    let matrix = |name: &str, dims: &[usize]| tensor(&format!("{at}.{name}.weight"), dims);
    let compress = matrix("kv_a_proj_with_mqa", &[latent, hidden]);
    match mla.q_lora {
        None => {
            let project = Source::Join(vec![matrix("q_proj", &[query, hidden]), compress]);
            parts.push(Part::new("mla.project", &[query + latent, hidden], project));
        }
        Some(rank) => {
            let project = Source::Join(vec![matrix("q_a_proj", &[rank, hidden]), compress]);
            parts.push(Part::new("mla.project", &[rank + latent, hidden], project));
            parts.push(Part::new("mla.query_norm", &[rank], matrix("q_a_layernorm", &[rank])));
            parts.push(Part::new("mla.query", &[query, rank], matrix("q_b_proj", &[query, rank])));
        }
    }
    parts.push(Part::new("mla.latent_norm", &[mla.kv_lora], matrix("kv_a_layernorm", &[mla.kv_lora])));
    let per_head = mla.nope + mla.value;
    let expand = matrix("kv_b_proj", &[mla.heads * per_head, mla.kv_lora]);
    let cut = |offset: usize, rows: usize| {
        let head =
            |head| Source::Rows { of: Box::new(expand.clone()), start: head * per_head + offset, rows };
        Source::Join((0..mla.heads).map(head).collect())
    };
    parts.extend([
        Part::new("mla.key", &[mla.heads, mla.nope, mla.kv_lora], cut(0, mla.nope)),
        Part::new("mla.value", &[mla.heads, mla.value, mla.kv_lora], cut(mla.nope, mla.value)),
        Part::new(
            "mla.out",
            &[hidden, mla.heads * mla.value],
            matrix("o_proj", &[hidden, mla.heads * mla.value]),
        ),
    ]);
}

/// A gated network: `in` holds the gate rows, then the up rows.
fn dense(at: &str, inner: usize, hidden: usize, parts: &mut Vec<Part>) {
    // `transformers` renames the feed-forward of every layer when it saves, dense ones included.
    let matrix = |name: &str, dims: &[usize]| {
        Source::tensor(["mlp", "block_sparse_moe"].map(|room| format!("{at}.{room}.{name}.weight")), dims)
    };
    let rows = vec![matrix("gate_proj", &[inner, hidden]), matrix("up_proj", &[inner, hidden])];
    parts.push(Part::new("dense.in", &[2 * inner, hidden], Source::Join(rows)));
    parts.push(Part::new("dense.out", &[hidden, inner], matrix("down_proj", &[hidden, inner])));
}

/// Routed experts, then the shared ones: a gated network of `shared * inner` channels is the sum of `shared` experts.
fn moe_parts(moe: &Moe, hidden: usize, at: &str, parts: &mut Vec<Part>) {
    let (experts, shared, inner) = (moe.experts, moe.shared, moe.inner);
    let named = |name: &str, dims: &[usize]| {
        Source::tensor([format!("{at}.mlp.{name}"), format!("{at}.block_sparse_moe.{name}")], dims)
    };
    let expert = |e: usize, names: [&str; 2], dims: &[usize]| {
        let name = |room: &str, name: &str| format!("{at}.{room}.experts.{e}.{name}.weight");
        Source::tensor(
            [name("block_sparse_moe", names[0]), name("mlp", names[0]), name("mlp", names[1])],
            dims,
        )
    };
    let split_in = |e| {
        let gate = expert(e, ["w1", "gate_proj"], &[inner, hidden]);
        Source::Join(vec![gate, expert(e, ["w3", "up_proj"], &[inner, hidden])])
    };
    let routed_in = Source::Either(vec![
        named("experts.gate_up_proj", &[experts, 2 * inner, hidden]),
        Source::Join((0..experts).map(split_in).collect()),
    ]);
    let shared_rows = |name: &str, e: usize| Source::Rows {
        of: Box::new(named(&format!("shared_experts.{name}.weight"), &[shared * inner, hidden])),
        start: e * inner,
        rows: inner,
    };
    let shared_in =
        (0..shared).map(|e| Source::Join(vec![shared_rows("gate_proj", e), shared_rows("up_proj", e)]));
    let enter = Source::Join(std::iter::once(routed_in).chain(shared_in).collect());

    let fused_down = named("experts.down_proj", &[experts, hidden, inner]);
    let routed_out = (0..experts).map(|e| {
        let fused = Source::Rows { of: Box::new(fused_down.clone()), start: e, rows: 1 };
        Source::Either(vec![fused, expert(e, ["w2", "down_proj"], &[hidden, inner])])
    });
    let shared_out =
        (shared > 0).then(|| named("shared_experts.down_proj.weight", &[hidden, shared * inner]));
    let leave = Source::Columns { parts: routed_out.chain(shared_out).collect(), rows: hidden };
    parts.extend([
        Part::new("moe.router", &[experts, hidden], named("gate.weight", &[experts, hidden])),
        Part::new("moe.bias", &[experts], named("gate.e_score_correction_bias", &[experts])),
        Part::new("moe.in", &[experts + shared, 2 * inner, hidden], enter),
        Part::new("moe.out", &[hidden, experts + shared, inner], leave),
    ]);
}

fn tensor(name: &str, dims: &[usize]) -> Source {
    Source::tensor([name.to_owned()], dims)
}
