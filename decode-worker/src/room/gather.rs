use std::collections::BTreeMap;

use engine::SlotState;
use kvxfer::segment::{RUN_BYTES, numbers};
use kvxfer::{Layout, Meters, Projection, Reason, Staged};

#[cfg(test)]
mod tests;

/// Latents come layer by layer, the engine takes tokens whole: pieces wait here until all layers of their tokens are
/// there. Counted as staged.
#[derive(Debug)]
pub(super) struct LatentRuns {
    layout: Layout,
    meters: Meters,
    /// By first token and count.
    runs: BTreeMap<(u32, u32), Run>,
    /// Bytes in `runs`.
    held: u64,
}

#[derive(Debug)]
struct Run {
    /// f32 [latent_layers, tokens, latent_width]
    latents: Vec<f32>,
    layers_left: u32,
    staged: Staged,
}

/// Most bytes in incomplete runs. A sender sends all layers of a run one after another, so one or two are open.
const MOST_HELD: u64 = 8 * RUN_BYTES;

impl LatentRuns {
    pub(super) fn new(layout: Layout, meters: Meters) -> LatentRuns {
        LatentRuns { layout, meters, runs: BTreeMap::new(), held: 0 }
    }

    /// Takes one layer of one run in; gives the run out once it is whole. That no piece comes twice is the transfer's to
    /// see to.
    pub(super) fn take(
        &mut self,
        layer: u32,
        first: u32,
        tokens: u32,
        payload: &[u8],
    ) -> Result<Option<Vec<f32>>, Reason> {
        let row = tokens as usize * self.layout.latent_width as usize;
        let all = self.layout.latent_layers as usize * row;
        let bytes = 4 * all as u64;
        if !self.runs.contains_key(&(first, tokens)) {
            // a single run may be larger than the bound, when a single token is
            if !self.runs.is_empty() && self.held + bytes > MOST_HELD {
                let fault = "latents of too many runs of tokens are incomplete".to_owned();
                return Err(Reason::Sink { fault });
            }
            self.held += bytes;
        }
        let run = self.runs.entry((first, tokens)).or_insert_with(|| Run {
            latents: vec![0.0; all],
            layers_left: self.layout.latent_layers,
            staged: self.meters.stage(bytes),
        });
        let start = layer as usize * row;
        run.latents[start..start + row].copy_from_slice(&numbers(payload));
        run.layers_left -= 1;
        if run.layers_left > 0 {
            return Ok(None);
        }
        self.held -= bytes;
        Ok(self.runs.remove(&(first, tokens)).map(|Run { latents, staged, .. }| {
            drop(staged);
            latents
        }))
    }
}

/// The recurrent state and the tails, put together from their segments.
#[derive(Debug)]
pub(super) struct StateParts {
    layout: Layout,
    meters: Meters,
    state: SlotState,
    staged: Option<Staged>,
}

impl StateParts {
    pub(super) fn new(layout: Layout, meters: Meters) -> StateParts {
        let state = SlotState { recurrent: Vec::new(), tails: Vec::new() };
        StateParts { layout, meters, state, staged: None }
    }

    pub(super) fn recurrent(&mut self, layer: u32, first_head: u32, payload: &[u8]) {
        let head = self.layout.key_dim as usize * self.layout.value_dim as usize;
        let start = (layer as usize * self.layout.heads as usize + first_head as usize) * head;
        let values = numbers(payload);
        self.open();
        self.state.recurrent[start..start + values.len()].copy_from_slice(&values);
    }

    pub(super) fn tail(&mut self, layer: u32, which: Projection, payload: &[u8]) {
        let tail = self.layout.tail_rows as usize * self.layout.tail_width as usize;
        let start = (layer as usize * 3 + which as usize) * tail;
        self.open();
        self.state.tails[start..start + tail].copy_from_slice(&numbers(payload));
    }

    /// All of it, once.
    pub(super) fn whole(&mut self) -> SlotState {
        self.open();
        self.staged = None;
        let empty = SlotState { recurrent: Vec::new(), tails: Vec::new() };
        std::mem::replace(&mut self.state, empty)
    }

    /// The state is allocated when its first part comes, which is last of all.
    fn open(&mut self) {
        if self.staged.is_none() {
            let layers = self.layout.recurrent_layers as usize;
            let head = self.layout.key_dim as usize * self.layout.value_dim as usize;
            let tail = self.layout.tail_rows as usize * self.layout.tail_width as usize;
            self.state.recurrent = vec![0.0; layers * self.layout.heads as usize * head];
            self.state.tails = vec![0.0; layers * 3 * tail];
            let numbers = self.state.recurrent.len() + self.state.tails.len();
            self.staged = Some(self.meters.stage(4 * numbers as u64));
        }
    }
}
