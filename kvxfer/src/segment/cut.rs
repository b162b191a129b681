use std::ops::Range;

use bytes::Bytes;

use super::{
    Layout, Projection, RUN_BYTES, Segment, SegmentId, WrongSize, check_size, units_a_segment, units_within,
};

/// Cuts one chunk's latents, f32 [latent_layers, tokens, latent_width], into segments that share its memory. All layers
/// of a run of tokens come one after another, so that a receiver that takes tokens whole holds few of them in pieces.
pub fn latents(
    layout: &Layout,
    first_token: u32,
    tokens: u32,
    chunk: &Bytes,
) -> Result<Vec<Segment>, WrongSize> {
    let unit = layout.token_bytes();
    let all_layers = u64::from(layout.latent_layers) * unit;
    check_size("latents", chunk, u64::from(tokens) * all_layers)?;
    let run = units_a_segment(unit, tokens).min(units_within(RUN_BYTES, all_layers, tokens));
    let mut segments = Vec::new();
    for from in (0..tokens).step_by(run as usize) {
        for layer in 0..layout.latent_layers {
            let count = run.min(tokens - from);
            let id = SegmentId::Latents { layer, first_token: first_token + from, tokens: count };
            let start = (u64::from(layer) * u64::from(tokens) + u64::from(from)) * unit;
            let payload = chunk.slice(span(start, u64::from(count) * unit));
            segments.push(Segment { id, payload });
        }
    }
    Ok(segments)
}

/// Cuts one sequence's recurrent state, f32 [recurrent_layers, heads, key, value], into segments that share its memory.
pub fn recurrent(layout: &Layout, state: &Bytes) -> Result<Vec<Segment>, WrongSize> {
    let unit = layout.head_bytes();
    check_size("recurrent", state, u64::from(layout.recurrent_layers) * u64::from(layout.heads) * unit)?;
    let step = units_a_segment(unit, layout.heads);
    let mut segments = Vec::new();
    for layer in 0..layout.recurrent_layers {
        for first_head in (0..layout.heads).step_by(step as usize) {
            let heads = step.min(layout.heads - first_head);
            let id = SegmentId::Recurrent { layer, first_head, heads };
            let start = (u64::from(layer) * u64::from(layout.heads) + u64::from(first_head)) * unit;
            segments.push(Segment { id, payload: state.slice(span(start, u64::from(heads) * unit)) });
        }
    }
    Ok(segments)
}

/// Cuts one sequence's convolution tails, f32 [recurrent_layers, 3 (q, k, v), tail_rows, tail_width].
pub fn tails(layout: &Layout, tails: &Bytes) -> Result<Vec<Segment>, WrongSize> {
    let unit = layout.tail_bytes();
    check_size("tails", tails, u64::from(layout.recurrent_layers) * 3 * unit)?;
    let mut segments = Vec::new();
    let mut start = 0;
    for layer in 0..layout.recurrent_layers {
        for which in [Projection::Query, Projection::Key, Projection::Value] {
            let id = SegmentId::Tail { layer, which };
            segments.push(Segment { id, payload: tails.slice(span(start, unit)) });
            start += unit;
        }
    }
    Ok(segments)
}

fn span(start: u64, length: u64) -> Range<usize> {
    start as usize..(start + length) as usize
}
