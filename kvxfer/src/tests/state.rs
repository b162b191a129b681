use std::collections::BTreeMap;

use bytes::Bytes;

use crate::ends::Source;
use crate::layout::Layout;
use crate::reason::Reason;
use crate::sampling::{FirstToken, SamplingState};
use crate::segment::{self, Projection, Segment, SegmentId, wire_bytes};
use crate::ticket::{Incarnation, Secret, Ticket, TicketId};

pub(super) const LAYOUT: Layout = Layout {
    latent_layers: 2,
    latent_width: 6,
    recurrent_layers: 3,
    heads: 4,
    key_dim: 5,
    value_dim: 3,
    tail_rows: 3,
    tail_width: 8,
    index_dim: 2,
    index_pool: 4,
    hidden: 9,
    vocabulary: 50,
    page_tokens: 16,
};
pub(super) const STATE_POS: u32 = 37;

pub(super) fn ticket() -> Ticket {
    Ticket {
        id: TicketId([9; 16]),
        endpoint: String::new(),
        secret: Secret([3; 32]),
        incarnation: Incarnation([4; 16]),
        layout: Layout { page_tokens: 32, ..LAYOUT },
        state_pos: STATE_POS,
    }
}

/// A whole state in which every number of every part is another one.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) layout: Layout,
    pub(super) tokens: u32,
    next: u32,
}

impl State {
    pub(super) fn new(layout: Layout, tokens: u32) -> State {
        State { layout, tokens, next: 0 }
    }

    fn numbers(&mut self, count: u32) -> Bytes {
        let first = self.next;
        self.next += count;
        let numbers: Vec<f32> = (first..self.next).map(|number| number as f32).collect();
        wire_bytes(numbers)
    }

    /// Every segment, latents in chunks of so many tokens.
    pub(super) fn segments(mut self, chunk: u32) -> Vec<Segment> {
        let layout = self.layout;
        let mut all = Vec::new();
        // numbers of a token must not depend on the chunking, so chunks are cut out of the whole
        let whole = self.numbers(layout.latent_layers * self.tokens * layout.latent_width);
        let pools = layout.pools(self.tokens);
        let keys = self.numbers(layout.latent_layers * pools * layout.index_dim);
        for first in (0..self.tokens).step_by(chunk as usize) {
            let tokens = chunk.min(self.tokens - first);
            let rows =
                rows(&whole, [layout.latent_layers, self.tokens, layout.latent_width], first..first + tokens);
            let closed = layout.closed_pools(first, tokens);
            let keys = self::rows(&keys, [layout.latent_layers, pools, layout.index_dim], closed);
            all.extend(segment::chunk(&layout, first, tokens, &rows, &keys).unwrap());
        }
        let state = self.numbers(layout.recurrent_layers * layout.heads * layout.key_dim * layout.value_dim);
        all.extend(segment::recurrent(&layout, 0..layout.heads, &state).unwrap());
        let tails = self.numbers(layout.recurrent_layers * 3 * layout.tail_rows * layout.tail_width);
        all.extend(segment::tails(&layout, 0..layout.heads, &tails).unwrap());
        let open = self.numbers(layout.latent_layers * layout.index_pool * 2 * layout.index_dim);
        all.extend(segment::index_tails(&layout, &open).unwrap());
        let hidden = self.numbers(layout.hidden);
        all.extend(segment::hidden(&layout, &hidden).unwrap());
        all.push(Segment { id: SegmentId::Sampling, payload: sampling(self.tokens).encode() });
        all
    }
}

/// Of f32 [layers, units, width] those of some units.
fn rows(whole: &Bytes, [layers, units, width]: [u32; 3], some: std::ops::Range<u32>) -> Bytes {
    let span = |layer: u32| {
        let at = |unit: u32| ((layer * units + unit) * width * 4) as usize;
        whole[at(some.start)..at(some.end)].to_vec()
    };
    (0..layers).flat_map(span).collect()
}

pub(super) fn sampling(position: u32) -> SamplingState {
    let first = FirstToken { id: 11, logprob: -1.5, top: vec![(11, -1.5), (2, -2.0)] };
    let prompt_ids = (0..50).step_by(2).take(position as usize).collect();
    SamplingState { seed: 77, position, first, prompt_ids, output_counts: vec![(11, 1)] }
}

/// What a sink was given, taken apart into single units so that two cuts of one state compare equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Units(BTreeMap<SegmentId, Vec<u8>>);

impl Units {
    pub(super) fn of(segments: &[Segment]) -> Units {
        let mut units = Units::default();
        for segment in segments {
            units.add(segment.id, &segment.payload);
        }
        units
    }

    pub(super) fn add(&mut self, id: SegmentId, payload: &[u8]) {
        let count = match id {
            SegmentId::Latents { tokens, .. } => tokens,
            SegmentId::Recurrent { heads, .. } => heads,
            SegmentId::IndexKeys { pools, .. } => pools,
            SegmentId::Tail { layer, which, first_head, heads } => {
                return self.add_tail(layer, which, first_head..first_head + heads, payload);
            }
            SegmentId::IndexTail { .. } | SegmentId::Hidden | SegmentId::Sampling => 1,
        };
        let length = payload.len() / count as usize;
        for (at, unit) in (0..count).zip(payload.chunks_exact(length)) {
            let id = match id {
                SegmentId::Latents { layer, first_token, .. } => {
                    SegmentId::Latents { layer, first_token: first_token + at, tokens: 1 }
                }
                SegmentId::Recurrent { layer, first_head, .. } => {
                    SegmentId::Recurrent { layer, first_head: first_head + at, heads: 1 }
                }
                SegmentId::IndexKeys { layer, first_pool, .. } => {
                    SegmentId::IndexKeys { layer, first_pool: first_pool + at, pools: 1 }
                }
                SegmentId::Tail { .. }
                | SegmentId::IndexTail { .. }
                | SegmentId::Hidden
                | SegmentId::Sampling => id,
            };
            assert!(self.0.insert(id, unit.to_vec()).is_none(), "{id} was given twice");
        }
    }

    /// Heads lie beside each other in every row.
    fn add_tail(&mut self, layer: u32, which: Projection, heads: std::ops::Range<u32>, payload: &[u8]) {
        let row = payload.len() / LAYOUT.tail_rows as usize;
        let width = row / heads.len();
        for (at, first_head) in heads.enumerate() {
            let id = SegmentId::Tail { layer, which, first_head, heads: 1 };
            let columns = at * width..(at + 1) * width;
            let unit = payload.chunks(row).flat_map(|row| row[columns.clone()].to_vec()).collect();
            assert!(self.0.insert(id, unit).is_none(), "{id} was given twice");
        }
    }

    /// Whether every unit here is the same there.
    pub(super) fn within(&self, whole: &Units) -> bool {
        self.0.iter().all(|(id, bytes)| whole.0.get(id) == Some(bytes))
    }
}

/// A source that has everything at once.
pub(super) struct Ready(pub(super) std::vec::IntoIter<Segment>);

impl Ready {
    pub(super) fn new(segments: Vec<Segment>) -> Ready {
        Ready(segments.into_iter())
    }
}

impl Source for Ready {
    async fn next(&mut self) -> Result<Option<Segment>, Reason> {
        Ok(self.0.next())
    }
}
