use std::ops::Range;

use bytes::Bytes;

use super::{
    Layout, Projection, RUN_BYTES, Segment, SegmentId, WrongSize, check_size, units_a_segment, units_within,
};

/// Cuts one chunk's latents, f32 [latent_layers, tokens, latent_width], and the keys of the index pools that close in it, f32
/// [latent_layers, pools, index_dim], into segments that share their memory. All layers of a run of tokens come one after
/// another, then the keys of the pools that close in the run, so that a receiver that takes tokens whole holds few of them
/// in pieces.
pub fn chunk(
    layout: &Layout,
    first_token: u32,
    tokens: u32,
    latents: &Bytes,
    keys: &Bytes,
) -> Result<Vec<Segment>, WrongSize> {
    let (layers, unit) = (u64::from(layout.latent_layers), layout.token_bytes());
    check_size("latents", latents, layers * u64::from(tokens) * unit)?;
    let pools = layout.closed_pools(first_token, tokens);
    let key_layers = u64::from(layout.index_layers());
    check_size("index keys", keys, key_layers * pools.len() as u64 * layout.pool_bytes())?;
    let mut segments = Vec::new();
    let run = run_of(layout, tokens);
    for from in (0..tokens).step_by(run as usize) {
        let count = run.min(tokens - from);
        for layer in 0..layout.latent_layers {
            let id = SegmentId::Latents { layer, first_token: first_token + from, tokens: count };
            let start = (u64::from(layer) * u64::from(tokens) + u64::from(from)) * unit;
            let payload = latents.slice(span(start, u64::from(count) * unit));
            segments.push(Segment { id, payload });
        }
        let closed = layout.closed_pools(first_token + from, count);
        if closed.is_empty() {
            continue;
        }
        for layer in 0..layout.index_layers() {
            let id = SegmentId::IndexKeys { layer, first_pool: closed.start, pools: closed.len() as u32 };
            let before = u64::from(layer) * pools.len() as u64 + u64::from(closed.start - pools.start);
            let bytes = closed.len() as u64 * layout.pool_bytes();
            segments.push(Segment { id, payload: keys.slice(span(before * layout.pool_bytes(), bytes)) });
        }
    }
    Ok(segments)
}

/// Tokens a run: neither their latents nor their keys outgrow a segment, nor all layers of both a run. Whole pools, unless
/// it is the whole chunk.
fn run_of(layout: &Layout, tokens: u32) -> u32 {
    let layers = u64::from(layout.latent_layers);
    let latents = units_a_segment(layout.token_bytes(), tokens);
    let Some(pool) = Some(layout.index_pool).filter(|&pool| pool > 0) else {
        return latents.min(units_within(RUN_BYTES, layers * layout.token_bytes(), tokens));
    };
    let token = layout.token_bytes() + layout.pool_bytes().div_ceil(pool.into());
    let keys = units_a_segment(layout.pool_bytes(), tokens).saturating_mul(pool);
    let run = latents.min(keys).min(units_within(RUN_BYTES, layers * token, tokens));
    if run > pool && run < tokens { run - run % pool } else { run }
}

/// Cuts the recurrent state of some heads of one sequence, f32 [recurrent_layers, heads, key, value], into segments that share
/// its memory. A side whose heads are cut over shards calls this once for each.
pub fn recurrent(layout: &Layout, heads: Range<u32>, state: &Bytes) -> Result<Vec<Segment>, WrongSize> {
    let (unit, count) = (layout.head_bytes(), heads.len() as u32);
    check_size("recurrent", state, u64::from(layout.recurrent_layers) * u64::from(count) * unit)?;
    let step = units_a_segment(unit, count);
    let mut segments = Vec::new();
    for layer in 0..layout.recurrent_layers {
        for from in (0..count).step_by(step as usize) {
            let some = step.min(count - from);
            let id = SegmentId::Recurrent { layer, first_head: heads.start + from, heads: some };
            let start = (u64::from(layer) * u64::from(count) + u64::from(from)) * unit;
            segments.push(Segment { id, payload: state.slice(span(start, u64::from(some) * unit)) });
        }
    }
    Ok(segments)
}

/// Cuts the convolution tails of some heads of one sequence, f32 [recurrent_layers, 3 (q, k, v), tail_rows, these heads'
/// channels].
pub fn tails(layout: &Layout, heads: Range<u32>, tails: &Bytes) -> Result<Vec<Segment>, WrongSize> {
    let (first_head, heads) = (heads.start, heads.len() as u32);
    let uneven =
        WrongSize { part: "tails", have: u64::from(layout.tail_width), need: u64::from(layout.heads) };
    let unit = layout.tail_bytes_of(heads).ok_or(uneven)?;
    check_size("tails", tails, u64::from(layout.recurrent_layers) * 3 * unit)?;
    let mut segments = Vec::new();
    let mut start = 0;
    for layer in 0..layout.recurrent_layers {
        for which in [Projection::Query, Projection::Key, Projection::Value] {
            let id = SegmentId::Tail { layer, which, first_head, heads };
            segments.push(Segment { id, payload: tails.slice(span(start, unit)) });
            start += unit;
        }
    }
    Ok(segments)
}

/// Cuts the open index pool's rows, f32 [latent_layers, index_pool, 2, index_dim]; nothing without an indexer.
pub fn index_tails(layout: &Layout, tails: &Bytes) -> Result<Vec<Segment>, WrongSize> {
    let unit = layout.index_tail_bytes();
    check_size("index tails", tails, u64::from(layout.index_layers()) * unit)?;
    let segment = |layer| {
        let payload = tails.slice(span(u64::from(layer) * unit, unit));
        Segment { id: SegmentId::IndexTail { layer }, payload }
    };
    Ok((0..layout.index_layers()).map(segment).collect())
}

/// The last hidden vector, f32 [hidden], as a segment; nothing without a draft layer.
pub fn hidden(layout: &Layout, vector: &Bytes) -> Result<Option<Segment>, WrongSize> {
    check_size("hidden", vector, layout.hidden_bytes())?;
    let segment = || Segment { id: SegmentId::Hidden, payload: vector.clone() };
    Ok((layout.hidden > 0).then(segment))
}

fn span(start: u64, length: u64) -> Range<usize> {
    start as usize..(start + length) as usize
}
