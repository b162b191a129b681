//! Maps one side's placement of a state to the other's, as copies.
//!
//! A state is addressed logically: by part, layer, token or head. Segments and their digests know nothing else, so they hold
//! whatever each side does. What differs is where the bytes lie: a side keeps its tokens in pages of its own length, and cuts
//! heads evenly over its shards. Latents, index keys, index tails and the hidden vector are whole on every shard; recurrent
//! state is cut by heads, and of each convolution tail (rows of channels, heads one after another) every shard has its heads'
//! columns of each of q, k and v, not a third of the three.

use std::cmp::min;

use crate::layout::Layout;
use crate::segment::Projection;

#[cfg(test)]
mod tests;

/// How one side places a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    pub page_tokens: u32,
    /// Shards that the heads are cut over.
    pub tensor_parallel: u32,
}

/// Buffers are one for each part, layer, shard and page; parts without tokens have page 0 alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// [page_tokens, latent_width]
    Latents,
    /// [page_tokens / index_pool, index_dim]
    IndexKeys,
    /// [heads / tensor_parallel, key_dim, value_dim]
    Recurrent,
    /// [tail_rows, tail_width / tensor_parallel]
    Tail(Projection),
    /// [index_pool, 2, index_dim]
    IndexTail,
    /// [hidden]
    Hidden,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Buffer {
    pub part: Part,
    pub layer: u32,
    pub shard: u32,
    /// The sequence's pages, counted from 0.
    pub page: u32,
}

/// Rows of bytes in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    pub buffer: Buffer,
    /// Bytes before the first row.
    pub offset: u64,
    /// Bytes from the start of one row to that of the next.
    pub stride: u64,
}

/// `rows` rows of `row_bytes` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    pub from: Region,
    pub to: Region,
    pub rows: u32,
    pub row_bytes: u64,
}

/// A placement that a layout does not allow, by the field that is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unplaceable {
    #[error("{field} {have} is not cut evenly by tensor_parallel {by}")]
    Uneven { field: &'static str, have: u32, by: u32 },
    #[error("page_tokens {page_tokens} is no multiple of index_pool {index_pool}")]
    Pages { page_tokens: u32, index_pool: u32 },
    #[error("{0} is 0")]
    Zero(&'static str),
}

impl Placement {
    fn check(&self, layout: &Layout) -> Result<(), Unplaceable> {
        let by = self.tensor_parallel;
        for (field, value) in [("tensor_parallel", by), ("page_tokens", self.page_tokens)] {
            if value == 0 {
                return Err(Unplaceable::Zero(field));
            }
        }
        // whole heads to a shard, and of a tail whole heads' channels
        let channels = layout.tail_width.checked_div(layout.heads).unwrap_or(0) * layout.heads;
        let heads = [("heads", layout.heads, by), ("tail_width", layout.tail_width, by)];
        if by > 1 && channels != layout.tail_width {
            return Err(Unplaceable::Uneven {
                field: "tail_width",
                have: layout.tail_width,
                by: layout.heads,
            });
        }
        if let Some((field, have, by)) = heads.into_iter().find(|(_, have, by)| have % by != 0) {
            return Err(Unplaceable::Uneven { field, have, by });
        }
        let (page_tokens, index_pool) = (self.page_tokens, layout.index_pool);
        if index_pool > 0 && page_tokens % index_pool != 0 {
            return Err(Unplaceable::Pages { page_tokens, index_pool });
        }
        Ok(())
    }
}

/// Everything a state after `state_pos` tokens consists of, from one placement to another. Whole parts come from shards in
/// turn, so that no source shard carries all of them.
pub fn plan(
    layout: &Layout,
    state_pos: u32,
    from: &Placement,
    to: &Placement,
) -> Result<Vec<Copy>, Unplaceable> {
    from.check(layout)?;
    to.check(layout)?;
    let mut plan = Plan { from: *from, to: *to, copies: Vec::new() };
    for layer in 0..layout.latent_layers {
        plan.paged(Part::Latents, layer, state_pos, 1, layout.token_bytes());
    }
    for layer in 0..layout.index_layers() {
        plan.paged(Part::IndexKeys, layer, layout.pools(state_pos), layout.index_pool, layout.pool_bytes());
        plan.whole(Part::IndexTail, layer, layout.index_tail_bytes());
    }
    for layer in 0..layout.recurrent_layers {
        plan.heads(Part::Recurrent, layer, layout.heads, 1, layout.head_bytes());
        for which in [Projection::Query, Projection::Key, Projection::Value] {
            // channels of one row: a head's lie together, rows far apart
            let row = layout.tail_bytes() / u64::from(layout.tail_rows.max(1));
            let unit = row / u64::from(layout.heads);
            plan.heads(Part::Tail(which), layer, layout.heads, layout.tail_rows, unit);
        }
    }
    if layout.hidden > 0 {
        plan.whole(Part::Hidden, 0, layout.hidden_bytes());
    }
    Ok(plan.copies)
}

struct Plan {
    from: Placement,
    to: Placement,
    copies: Vec<Copy>,
}

impl Plan {
    /// `units` units of `tokens_a_unit` tokens each, whole on every shard.
    fn paged(&mut self, part: Part, layer: u32, units: u32, tokens_a_unit: u32, unit_bytes: u64) {
        let (source, sink) = (self.from.page_tokens / tokens_a_unit, self.to.page_tokens / tokens_a_unit);
        for shard in 0..self.to.tensor_parallel {
            let mut unit = 0;
            while unit < units {
                // up to the next page's start on either side
                let count = min(min(source - unit % source, sink - unit % sink), units - unit);
                let region = |shard: u32, page_units: u32| Region {
                    buffer: Buffer { part, layer, shard, page: unit / page_units },
                    offset: u64::from(unit % page_units) * unit_bytes,
                    stride: unit_bytes,
                };
                let from = region(self.source_of(shard), source);
                let to = region(shard, sink);
                self.copies.push(Copy { from, to, rows: 1, row_bytes: u64::from(count) * unit_bytes });
                unit += count;
            }
        }
    }

    /// One buffer, whole on every shard.
    fn whole(&mut self, part: Part, layer: u32, bytes: u64) {
        for shard in 0..self.to.tensor_parallel {
            let region = |shard| {
                let buffer = Buffer { part, layer, shard, page: 0 };
                Region { buffer, offset: 0, stride: bytes }
            };
            let (from, to) = (region(self.source_of(shard)), region(shard));
            self.copies.push(Copy { from, to, rows: 1, row_bytes: bytes });
        }
    }

    /// `rows` rows in which each head has `unit_bytes`, cut by heads on both sides.
    fn heads(&mut self, part: Part, layer: u32, heads: u32, rows: u32, unit_bytes: u64) {
        let (source, sink) = (heads / self.from.tensor_parallel, heads / self.to.tensor_parallel);
        let mut head = 0;
        while head < heads {
            // up to the next shard's start on either side
            let count = min(source - head % source, sink - head % sink);
            let region = |share: u32| Region {
                buffer: Buffer { part, layer, shard: head / share, page: 0 },
                offset: u64::from(head % share) * unit_bytes,
                stride: u64::from(share) * unit_bytes,
            };
            let row_bytes = u64::from(count) * unit_bytes;
            self.copies.push(Copy { from: region(source), to: region(sink), rows, row_bytes });
            head += count;
        }
    }

    fn source_of(&self, shard: u32) -> u32 {
        shard % self.from.tensor_parallel
    }
}
