use std::collections::BTreeMap;

use super::Manifest;
use crate::segment::{Projection, SegmentId};

/// Which of a manifest's parts have arrived: each must come exactly once.
#[derive(Debug)]
pub(crate) struct Coverage {
    manifest: Manifest,
    latents: Vec<Ranges>,
    recurrent: Vec<Ranges>,
    /// [layer][q, k, v]
    tails: Vec<[Ranges; 3]>,
    index_keys: Vec<Ranges>,
    index_tails: Vec<bool>,
    hidden: bool,
    sampling: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimError {
    /// Some of it came before.
    Twice,
    /// The ranges came in so wild an order that tracking them would cost memory without bound.
    Scattered,
}

/// Disjoint ranges in one layer; an honest sender's merge into one or two.
const MOST_RANGES: usize = 1024;

/// Covered ranges: start -> end.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<u32, u32>);

impl Ranges {
    fn claim(&mut self, first: u32, count: u32) -> Result<(), ClaimError> {
        let (mut start, mut end) = (first, first + count);
        let before = self.0.range(..end).next_back().map(|(&s, &e)| (s, e));
        if let Some((s, e)) = before {
            if e > start {
                return Err(ClaimError::Twice);
            }
            if e == start {
                self.0.remove(&s);
                start = s;
            }
        }
        if let Some(after) = self.0.remove(&end) {
            end = after;
        }
        if self.0.len() >= MOST_RANGES {
            return Err(ClaimError::Scattered);
        }
        self.0.insert(start, end);
        Ok(())
    }

    /// The first unit of `units` that is not covered.
    fn first_missing(&self, units: u32) -> Option<u32> {
        let covered = self.0.get(&0).copied().unwrap_or(0);
        (covered < units).then_some(covered)
    }
}

fn claim(layers: &mut [Ranges], layer: u32, first: u32, count: u32) -> Result<(), ClaimError> {
    layers.get_mut(layer as usize).ok_or(ClaimError::Twice)?.claim(first, count)
}

impl Coverage {
    pub(crate) fn new(manifest: Manifest) -> Coverage {
        let layers = |count: u32| (0..count).map(|_| Ranges::default()).collect();
        let layout = manifest.layout();
        Coverage {
            latents: layers(layout.latent_layers),
            recurrent: layers(layout.recurrent_layers),
            tails: (0..layout.recurrent_layers).map(|_| Default::default()).collect(),
            index_keys: layers(layout.index_layers()),
            index_tails: vec![false; layout.index_layers() as usize],
            // there is nothing to wait for
            hidden: layout.hidden == 0,
            sampling: false,
            manifest,
        }
    }

    /// Marks a segment that [`Manifest::check`] let through.
    pub(crate) fn claim(&mut self, id: &SegmentId) -> Result<(), ClaimError> {
        let flag = match *id {
            SegmentId::Latents { layer, first_token, tokens } => {
                return claim(&mut self.latents, layer, first_token, tokens);
            }
            SegmentId::Recurrent { layer, first_head, heads } => {
                return claim(&mut self.recurrent, layer, first_head, heads);
            }
            SegmentId::IndexKeys { layer, first_pool, pools } => {
                return claim(&mut self.index_keys, layer, first_pool, pools);
            }
            SegmentId::Tail { layer, which, first_head, heads } => {
                let tails = self.tails.get_mut(layer as usize).ok_or(ClaimError::Twice)?;
                return tails[which as usize].claim(first_head, heads);
            }
            SegmentId::IndexTail { layer } => self.index_tails.get_mut(layer as usize),
            SegmentId::Hidden => Some(&mut self.hidden),
            SegmentId::Sampling => Some(&mut self.sampling),
        };
        let flag = flag.ok_or(ClaimError::Twice)?;
        if std::mem::replace(flag, true) { Err(ClaimError::Twice) } else { Ok(()) }
    }

    /// The first part that has not arrived, cut to one unit.
    pub(crate) fn first_missing(&self) -> Option<SegmentId> {
        for (layer, ranges) in (0..).zip(&self.latents) {
            if let Some(first_token) = ranges.first_missing(self.manifest.state_pos()) {
                return Some(SegmentId::Latents { layer, first_token, tokens: 1 });
            }
        }
        for (layer, ranges) in (0..).zip(&self.recurrent) {
            if let Some(first_head) = ranges.first_missing(self.manifest.layout().heads) {
                return Some(SegmentId::Recurrent { layer, first_head, heads: 1 });
            }
        }
        for (layer, tails) in (0..).zip(&self.tails) {
            for which in [Projection::Query, Projection::Key, Projection::Value] {
                if let Some(first_head) = tails[which as usize].first_missing(self.manifest.layout().heads) {
                    return Some(SegmentId::Tail { layer, which, first_head, heads: 1 });
                }
            }
        }
        for (layer, ranges) in (0..).zip(&self.index_keys) {
            if let Some(first_pool) =
                ranges.first_missing(self.manifest.layout().pools(self.manifest.state_pos()))
            {
                return Some(SegmentId::IndexKeys { layer, first_pool, pools: 1 });
            }
        }
        if let Some(layer) = (0..).zip(&self.index_tails).find_map(|(layer, there)| (!there).then_some(layer))
        {
            return Some(SegmentId::IndexTail { layer });
        }
        if !self.hidden {
            return Some(SegmentId::Hidden);
        }
        (!self.sampling).then_some(SegmentId::Sampling)
    }
}
