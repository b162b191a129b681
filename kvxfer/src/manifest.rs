use crate::layout::Layout;
use crate::sampling::SamplingState;
use crate::segment::{SEGMENT_BYTES, SegmentId};

mod coverage;

pub(crate) use coverage::{ClaimError, Coverage};

/// Everything a hand-over must carry: all layers' latents up to `state_pos`, all heads' recurrent state, all tails, what the
/// layout says of an indexer (every whole pool's key, the open pool's rows) and of a draft layer (the last hidden vector),
/// and the sampling state. No part is optional.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manifest {
    layout: Layout,
    state_pos: u32,
}

/// A segment that no hand-over of this manifest can contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotInManifest {
    #[error("{0} lies outside the state")]
    Outside(SegmentId),
    #[error("{id} has {have} bytes where {need} are needed")]
    Length { id: SegmentId, have: u64, need: u64 },
    #[error("{id} of {have} bytes is longer than the largest segment, {most}")]
    TooLong { id: SegmentId, have: u64, most: u64 },
}

impl Manifest {
    pub fn new(layout: Layout, state_pos: u32) -> Manifest {
        Manifest { layout, state_pos }
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn state_pos(&self) -> u32 {
        self.state_pos
    }

    /// The largest payload a segment of this manifest may have. A single token, head, pool, tail or hidden
    /// vector may be larger than the usual cut; nothing else may.
    pub fn largest_segment(&self) -> u64 {
        let indivisible = [
            self.layout.token_bytes(),
            self.layout.head_bytes(),
            self.layout.tail_bytes(),
            self.layout.pool_bytes(),
            self.layout.index_tail_bytes(),
            self.layout.hidden_bytes(),
            SamplingState::most_bytes(&self.layout, self.state_pos),
        ];
        indivisible.into_iter().fold(SEGMENT_BYTES, u64::max)
    }

    /// Whether `id` with a payload of `have` bytes belongs to this hand-over; asked before a byte is allocated for it.
    pub fn check(&self, id: &SegmentId, have: u64) -> Result<(), NotInManifest> {
        let need = self.bytes_of(id)?.unwrap_or(have);
        if have != need {
            return Err(NotInManifest::Length { id: *id, have, need });
        }
        let most = match id {
            SegmentId::Sampling => SamplingState::most_bytes(&self.layout, self.state_pos),
            SegmentId::Latents { .. }
            | SegmentId::Recurrent { .. }
            | SegmentId::Tail { .. }
            | SegmentId::IndexKeys { .. }
            | SegmentId::IndexTail { .. }
            | SegmentId::Hidden => self.largest_segment(),
        };
        if have > most { Err(NotInManifest::TooLong { id: *id, have, most }) } else { Ok(()) }
    }

    /// Bytes of a segment that lies inside the state; nothing for the sampling state, whose length varies.
    fn bytes_of(&self, id: &SegmentId) -> Result<Option<u64>, NotInManifest> {
        Ok(Some(match *id {
            SegmentId::Latents { layer, first_token, tokens } => {
                within(id, layer, self.layout.latent_layers, first_token, tokens, self.state_pos)?;
                u64::from(tokens) * self.layout.token_bytes()
            }
            SegmentId::Recurrent { layer, first_head, heads } => {
                within(id, layer, self.layout.recurrent_layers, first_head, heads, self.layout.heads)?;
                u64::from(heads).saturating_mul(self.layout.head_bytes())
            }
            SegmentId::Tail { layer, first_head, heads, .. } => {
                within(id, layer, self.layout.recurrent_layers, first_head, heads, self.layout.heads)?;
                self.layout.tail_bytes_of(heads).ok_or(NotInManifest::Outside(*id))?
            }
            SegmentId::IndexKeys { layer, first_pool, pools } => {
                let all = self.layout.pools(self.state_pos);
                within(id, layer, self.layout.index_layers(), first_pool, pools, all)?;
                u64::from(pools).saturating_mul(self.layout.pool_bytes())
            }
            SegmentId::IndexTail { layer } => {
                within(id, layer, self.layout.index_layers(), 0, 1, 1)?;
                self.layout.index_tail_bytes()
            }
            SegmentId::Hidden if self.layout.hidden == 0 => return Err(NotInManifest::Outside(*id)),
            SegmentId::Hidden => self.layout.hidden_bytes(),
            SegmentId::Sampling => return Ok(None),
        }))
    }
}

fn within(
    id: &SegmentId,
    layer: u32,
    layers: u32,
    first: u32,
    count: u32,
    units: u32,
) -> Result<(), NotInManifest> {
    let inside = layer < layers && count > 0 && first < units && count <= units - first;
    if inside { Ok(()) } else { Err(NotInManifest::Outside(*id)) }
}
