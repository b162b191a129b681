use super::Source;
use super::part::{Part, Rows, tensor};
use crate::{Indexer, ModelConfig};

/// Multi-head latent attention. The key and value halves of `kv_b_proj` are told apart for the absorbed form.
pub(super) fn parts(config: &ModelConfig, at: &str, parts: &mut Vec<Part>) {
    let (hidden, mla) = (config.hidden, &config.mla);
    let query = mla.heads * mla.query_width();
    let (latent, values) = (mla.latent_width(), mla.heads * mla.value);
    let matrix = |name: &str, dims: &[usize]| tensor(&format!("{at}.{name}.weight"), dims);
    let mut project = vec![match mla.q_lora {
        None => Rows::cut("query", query, matrix("q_proj", &[query, hidden])),
        Some(rank) => Rows::whole("query", rank, matrix("q_a_proj", &[rank, hidden])),
    }];
    project.push(Rows::whole("latent", latent, matrix("kv_a_proj_with_mqa", &[latent, hidden])));
    if mla.gated {
        project.push(Rows::cut("gate", values, matrix("g_proj", &[values, hidden])));
    }
    parts.push(Part::rows("mla.project", hidden, project));
    if let Some(rank) = mla.q_lora {
        parts.push(Part::vector("mla.query_norm", &[rank], matrix("q_a_layernorm", &[rank])));
        parts.push(Part::matrix("mla.query", &[query, rank], matrix("q_b_proj", &[query, rank])).cut(0));
        if let Some(indexer) = &mla.indexer {
            index(indexer, hidden, rank, &format!("{at}.indexer"), parts);
        }
    }
    parts.push(Part::vector("mla.latent_norm", &[mla.kv_lora], matrix("kv_a_layernorm", &[mla.kv_lora])));
    let per_head = mla.nope + mla.value;
    let expand = matrix("kv_b_proj", &[mla.heads * per_head, mla.kv_lora]);
    let cut = |offset: usize, rows: usize| {
        let head = |head| expand.clone().rows(head * per_head + offset, rows);
        Source::Join((0..mla.heads).map(head).collect())
    };
    parts.extend([
        Part::matrix("mla.key", &[mla.heads, mla.nope, mla.kv_lora], cut(0, mla.nope)).cut(0),
        Part::matrix("mla.value", &[mla.heads, mla.value, mla.kv_lora], cut(mla.nope, mla.value)).cut(0),
        Part::matrix("mla.out", &[hidden, values], matrix("o_proj", &[hidden, values])).cut(1),
    ]);
}

/// The sparse attention's indexer. Its matrices are never held in less than 16 bits, and what they give is summed in f32: an
/// error here changes which tokens are attended to.
fn index(indexer: &Indexer, hidden: usize, rank: usize, at: &str, parts: &mut Vec<Part>) {
    let (heads, dim, pool) = (indexer.heads, indexer.dim, indexer.pool);
    let named = |name: &str, dims: &[usize]| tensor(&format!("{at}.{name}"), dims);
    let query = named("wq_b.weight", &[heads * dim, rank]);
    // Rows of key, pooling score and head weights, which all read the layer's input.
    let project = Source::Join(vec![
        named("wk.weight", &[dim, hidden]),
        named("index_kpool_compress_gate", &[dim, hidden]),
        named("weights_proj.weight", &[heads, hidden]),
    ]);
    parts.extend([
        Part::table("index.query", &[heads * dim, rank], query),
        Part::table("index.project", &[2 * dim + heads, hidden], project),
        Part::vector("index.norm", &[dim], named("k_norm.weight", &[dim])),
        Part::vector("index.norm_bias", &[dim], named("k_norm.bias", &[dim])),
        Part::vector("index.places", &[pool, dim], named("index_kpool_compress_ape", &[pool, dim])),
    ]);
}
