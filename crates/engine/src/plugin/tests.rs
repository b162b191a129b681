use std::num::NonZeroUsize;
use std::path::Path;

use programs::ShapeLadder;
use programs::weights::Float;

use super::PluginDevice;
use crate::{Device, EngineConfig, Error, Lease, Limits, Pool, Role, SlotState};

const DEVICES: [usize; 3] = [1, 2, 4];
const PAGES: [u32; 3] = [16, 48, 64];
/// Longer than a page of any length; its last pool is open, and so is the draft layer's, a token behind.
const TOKENS: u32 = 131;

/// An engine's device that compiles what it is asked to do.
fn open(model: &str, devices: usize, page_tokens: u32) -> Result<PluginDevice, Error> {
    let ladder = ShapeLadder {
        chunks: vec![96],
        batches: vec![2],
        context: 190,
        page_tokens,
        pages: 3 * 192 / page_tokens,
        slots: 2,
        drafts: 2,
        latents: Float::F32,
        lane: 1,
    };
    let config = EngineConfig {
        model_dir: Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models").join(model),
        plugin: pjrt::plugin_path()?,
        devices: NonZeroUsize::new(devices),
        role: Role::Both,
        ladder: Some(ladder),
        drafts: Some(2),
        float: Float::F32,
        int8: false,
        cache_dir: None,
        poison: true,
        limits: Limits::default(),
        prefix: None,
    };
    PluginDevice::open_with(&config, Default::default(), |_, _| Vec::new(), &|_| {})
}

/// All that a sequence of [`TOKENS`] tokens consists of.
#[derive(Clone, Debug, PartialEq)]
struct Sequence {
    latents: Vec<f32>,
    keys: Vec<f32>,
    slot: SlotState,
}

/// Numbers that no two places share.
fn unique(count: usize, from: usize) -> Vec<f32> {
    (from..from + count).map(|number| number as f32).collect()
}

fn sent(device: &PluginDevice) -> Sequence {
    let state = &device.facts().state;
    let index = state.index.unwrap_or(model::IndexShape { dim: 0, pool: 1 });
    let latents = TOKENS as usize * state.latent_layers * state.latent_width;
    let keys = device.facts().key_elements(&device.facts().pools(0, TOKENS));
    let mut index_tail = unique(state.index_tail_elements(), 3_000_000);
    let layers = state.latent_layers;
    for (layer, rows) in index_tail.chunks_exact_mut(index.pool * 2 * index.dim.max(1)).enumerate() {
        let behind = usize::from(layer + 1 == layers && state.hidden.is_some());
        let open = (TOKENS as usize - behind) % index.pool;
        rows[open * 2 * index.dim..].fill(0.0);
    }
    let slot = SlotState {
        recurrent: unique(state.recurrent_elements(), 1),
        tails: unique(state.tail_elements(), 1_000_000),
        index_tail,
        hidden: unique(state.hidden.unwrap_or(0), 4_000_000),
    };
    Sequence { latents: unique(latents, 2_000_000), keys: unique(keys, 5_000_000), slot }
}

fn lease(device: &PluginDevice) -> Lease {
    let pool = Pool::with_cache(device.facts().pool(), None, || {});
    let before = pool.reserve(1).unwrap();
    let lease = pool.reserve(TOKENS).unwrap();
    drop(before);
    lease
}

fn put(device: &mut PluginDevice, lease: &Lease, sequence: &Sequence) {
    device.import_latents(lease, 0, TOKENS, &sequence.latents, &sequence.keys).unwrap();
    device.import_state(lease.slot(), TOKENS, &sequence.slot).unwrap();
}

fn get(device: &mut PluginDevice, lease: &Lease) -> Sequence {
    let (latents, keys) = device.export_latents(lease, 0, TOKENS).unwrap();
    Sequence { latents, keys, slot: device.export_state(lease.slot(), TOKENS).unwrap() }
}

/// What every layout holds is what was sent, to the bit, whichever layout it came through last.
fn moves_between_all_layouts(model: &str) {
    let layouts = DEVICES.into_iter().flat_map(|devices| PAGES.map(|pages| (devices, pages)));
    let mut sequence: Option<Sequence> = None;
    for (devices, pages) in layouts {
        let mut device = open(model, devices, pages).unwrap();
        let original = sent(&device);
        let lease = lease(&device);
        put(&mut device, &lease, sequence.as_ref().unwrap_or(&original));
        let got = get(&mut device, &lease);
        assert!(got == original, "{model} on {devices} devices, pages of {pages}");
        sequence = Some(got);
    }
}

#[test]
fn k3_state_moves_between_all_layouts() {
    moves_between_all_layouts("k3-demo");
}

#[test]
fn glm_state_moves_between_all_layouts() {
    moves_between_all_layouts("glm-demo");
}

#[test]
fn devices_that_the_model_does_not_divide_over_are_refused_by_field() {
    let error = open("k3-demo", 3, 16).unwrap_err();
    assert!(error.to_string().contains("num_heads"), "{error}");
}
