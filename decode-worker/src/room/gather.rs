use std::collections::BTreeMap;
use std::ops::Range;

use engine::SlotState;
use kvxfer::segment::{RUN_BYTES, numbers};
use kvxfer::{Layout, Meters, Projection, Reason, Staged};

#[cfg(test)]
mod tests;

/// Latents and index keys come layer by layer, the engine takes runs of tokens whole: pieces wait here until all layers of
/// their tokens, and of the pools that close in them, are there. Counted as staged.
#[derive(Debug)]
pub(super) struct Runs {
    layout: Layout,
    meters: Meters,
    /// f32 [latent_layers, tokens, latent_width] each, by first token and count.
    latents: BTreeMap<(u32, u32), Pieces>,
    /// f32 [latent_layers, pools, index_dim] each, by first pool and count.
    keys: BTreeMap<(u32, u32), Pieces>,
    /// Bytes in both.
    held: u64,
}

/// Latents of tokens and keys of the pools that close in them, for the engine.
#[derive(Debug, PartialEq)]
pub(super) struct Run {
    pub(super) first_token: u32,
    pub(super) tokens: u32,
    /// f32 [latent_layers, tokens, latent_width]
    pub(super) latents: Vec<f32>,
    /// f32 [latent_layers, pools, index_dim]
    pub(super) keys: Vec<f32>,
}

#[derive(Debug)]
struct Pieces {
    numbers: Vec<f32>,
    layers_left: u32,
    staged: Staged,
}

/// Most bytes in incomplete runs. A sender sends all layers of a run one after another, so one or two are open.
const MOST_HELD: u64 = 8 * RUN_BYTES;

impl Runs {
    pub(super) fn new(layout: Layout, meters: Meters) -> Runs {
        Runs { layout, meters, latents: BTreeMap::new(), keys: BTreeMap::new(), held: 0 }
    }

    /// Nothing waits for its other layers, or for what belongs to it.
    pub(super) fn is_empty(&self) -> bool {
        self.latents.is_empty() && self.keys.is_empty()
    }

    /// Takes one layer of one run's latents in; gives the run out once it is whole. That no piece comes twice is the
    /// transfer's to see to.
    pub(super) fn latents(
        &mut self,
        layer: u32,
        first: u32,
        tokens: u32,
        payload: &[u8],
    ) -> Result<Option<Run>, Reason> {
        let at = (first, tokens);
        self.make_room(self.latents.contains_key(&at), payload)?;
        let pieces =
            self.latents.entry(at).or_insert_with(|| Pieces::new(&self.layout, &self.meters, payload));
        pieces.put(layer, payload);
        Ok(self.whole(at))
    }

    /// The same of the keys of the pools that close in a run.
    pub(super) fn keys(
        &mut self,
        layer: u32,
        first: u32,
        pools: u32,
        payload: &[u8],
    ) -> Result<Option<Run>, Reason> {
        let at = (first, pools);
        self.make_room(self.keys.contains_key(&at), payload)?;
        let pieces = self.keys.entry(at).or_insert_with(|| Pieces::new(&self.layout, &self.meters, payload));
        pieces.put(layer, payload);
        let closes_them = |&&(first, tokens): &&(u32, u32)| pools_of(&self.layout, first, tokens) == Some(at);
        let run = self.latents.keys().find(closes_them).copied();
        Ok(run.and_then(|run| self.whole(run)))
    }

    /// Counts all layers of a new run in, of one layer of which this is the payload.
    fn make_room(&mut self, known: bool, payload: &[u8]) -> Result<(), Reason> {
        if known {
            return Ok(());
        }
        let bytes = u64::from(self.layout.latent_layers) * payload.len() as u64;
        // a single run may be larger than the bound, when a single token is
        if !self.is_empty() && self.held + bytes > MOST_HELD {
            let fault = "latents of too many runs of tokens are incomplete".to_owned();
            return Err(Reason::Sink { fault });
        }
        self.held += bytes;
        Ok(())
    }

    /// Takes the run of these tokens out, if all of it is there.
    fn whole(&mut self, at: (u32, u32)) -> Option<Run> {
        let whole = |pieces: &BTreeMap<(u32, u32), Pieces>, at: (u32, u32)| {
            pieces.get(&at).is_some_and(|pieces| pieces.layers_left == 0)
        };
        let pools = pools_of(&self.layout, at.0, at.1);
        if !whole(&self.latents, at) || pools.is_some_and(|pools| !whole(&self.keys, pools)) {
            return None;
        }
        let keys = pools.and_then(|pools| self.keys.remove(&pools)).map(Pieces::into_numbers);
        let (keys, latents) = (keys.unwrap_or_default(), self.latents.remove(&at)?.into_numbers());
        self.held -= 4 * (keys.len() + latents.len()) as u64;
        Some(Run { first_token: at.0, tokens: at.1, latents, keys })
    }
}

/// First and count of the pools that close within a run, if any.
fn pools_of(layout: &Layout, first: u32, tokens: u32) -> Option<(u32, u32)> {
    let pools = layout.closed_pools(first, tokens);
    (!pools.is_empty()).then(|| (pools.start, pools.end - pools.start))
}

impl Pieces {
    /// Room for all layers, one of which has this payload.
    fn new(layout: &Layout, meters: &Meters, payload: &[u8]) -> Pieces {
        let bytes = layout.latent_layers as usize * payload.len();
        Pieces {
            numbers: vec![0.0; bytes / 4],
            layers_left: layout.latent_layers,
            staged: meters.stage(bytes as u64),
        }
    }

    fn put(&mut self, layer: u32, payload: &[u8]) {
        let one = payload.len() / 4;
        let start = layer as usize * one;
        self.numbers[start..start + one].copy_from_slice(&numbers(payload));
        self.layers_left -= 1;
    }

    /// They are staged no longer.
    fn into_numbers(self) -> Vec<f32> {
        drop(self.staged);
        self.numbers
    }
}

/// The fixed-size part of a state, put together from its segments.
#[derive(Debug)]
pub(super) struct StateParts {
    layout: Layout,
    meters: Meters,
    state: SlotState,
    staged: Option<Staged>,
}

impl StateParts {
    pub(super) fn new(layout: Layout, meters: Meters) -> StateParts {
        StateParts { layout, meters, state: SlotState::default(), staged: None }
    }

    pub(super) fn recurrent(&mut self, layer: u32, first_head: u32, payload: &[u8]) {
        let head = self.layout.key_dim as usize * self.layout.value_dim as usize;
        let start = (layer as usize * self.layout.heads as usize + first_head as usize) * head;
        let values = numbers(payload);
        self.open();
        self.state.recurrent[start..start + values.len()].copy_from_slice(&values);
    }

    /// These heads' columns of each row of one tail.
    pub(super) fn tail(&mut self, layer: u32, which: Projection, heads: Range<u32>, payload: &[u8]) {
        let (rows, width) = (self.layout.tail_rows as usize, self.layout.tail_width as usize);
        let values = numbers(payload);
        let columns = values.len() / rows.max(1);
        // of heads that are all there, the first starts at the first channel
        let first = heads.start as usize * columns / heads.len().max(1);
        self.open();
        for (row, values) in values.chunks_exact(columns.max(1)).enumerate() {
            let start = ((layer as usize * 3 + which as usize) * rows + row) * width + first;
            self.state.tails[start..start + columns].copy_from_slice(values);
        }
    }

    pub(super) fn index_tail(&mut self, layer: u32, payload: &[u8]) {
        let values = numbers(payload);
        let start = layer as usize * values.len();
        self.open();
        self.state.index_tail[start..start + values.len()].copy_from_slice(&values);
    }

    pub(super) fn hidden(&mut self, payload: &[u8]) {
        self.open();
        self.state.hidden.copy_from_slice(&numbers(payload));
    }

    /// All of it, once.
    pub(super) fn whole(&mut self) -> SlotState {
        self.open();
        self.staged = None;
        std::mem::take(&mut self.state)
    }

    /// The state is allocated when its first part comes, which is last of all.
    fn open(&mut self) {
        if self.staged.is_none() {
            let layout = &self.layout;
            let zeros = |axes: &[u32]| vec![0.0; axes.iter().map(|&axis| axis as usize).product()];
            self.state = SlotState {
                recurrent: zeros(&[layout.recurrent_layers, layout.heads, layout.key_dim, layout.value_dim]),
                tails: zeros(&[layout.recurrent_layers, 3, layout.tail_rows, layout.tail_width]),
                index_tail: zeros(&[layout.latent_layers, layout.index_pool, 2, layout.index_dim]),
                hidden: zeros(&[layout.hidden]),
            };
            let SlotState { recurrent, tails, index_tail, hidden } = &self.state;
            let numbers = recurrent.len() + tails.len() + index_tail.len() + hidden.len();
            self.staged = Some(self.meters.stage(4 * numbers as u64));
        }
    }
}
