//! Tensors of any config with random contents, in any format.

use std::collections::BTreeMap;
use std::path::Path;

use model::ModelConfig;
use model::weights::{Formats, weights};
use safetensors::Dtype;
use serde_json::Value;

/// How a tensor is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    F32,
    Bf16,
    F16,
    Fp8,
    Mxfp4,
}

/// One tensor of a file.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) dims: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

/// Marsaglia's xorshift64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend(self.next().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

/// The config of an oracle fixture with some fields changed.
pub(crate) fn config(fixture: &str, changes: &Value) -> Value {
    let path = format!("../../oracle/fixtures/{fixture}/config.json");
    let text = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let mut config: Value = serde_json::from_slice(&text).unwrap();
    for (field, value) in changes.as_object().unwrap() {
        config[field] = value.clone();
    }
    config
}

/// Every tensor of a model under its published name, and its shape.
pub(crate) fn needed(config: &Value) -> BTreeMap<String, Vec<usize>> {
    let config = ModelConfig::from_json(&config.to_string()).unwrap();
    let kimi = config.family.name().starts_with("kimi");
    let published = |name: &str| {
        let fused = [".experts.gate_up", ".experts.down_proj", ".conv1d", "forget_gate"];
        !fused.iter().any(|part| name.contains(part)) && (kimi || !name.contains("block_sparse_moe"))
    };
    let mut tensors = BTreeMap::new();
    for weight in weights(&config, &Formats::default()) {
        let mut visit = |piece: model::weights::Piece<'_>| {
            tensors.insert(piece.tensor.to_owned(), piece.dims.to_vec());
        };
        weight.pieces(&published, &mut visit).unwrap();
    }
    tensors
}

/// A tensor in a form, with random contents that are finite and about as large as weights are.
pub(crate) fn stored(name: &str, dims: &[usize], form: Form, random: &mut Random) -> Vec<Part> {
    let count: usize = dims.iter().product();
    let part = |suffix: &str, dtype, dims: &[usize], bytes| Part {
        name: format!("{name}{suffix}"),
        dtype,
        dims: dims.to_vec(),
        bytes,
    };
    let with_last = |by: usize| [&dims[..dims.len() - 1], &[dims[dims.len() - 1] / by]].concat();
    // The upper byte holds sign and exponent: small enough for finite values, and both signs.
    let floats = |size: usize, mask: u8, base: u8, random: &mut Random| {
        let mut bytes = random.bytes(count * size);
        bytes.iter_mut().skip(size - 1).step_by(size).for_each(|top| *top = *top & mask | base);
        bytes
    };
    match form {
        Form::F32 => vec![part("", Dtype::F32, dims, floats(4, 0x81, 0x3c, random))],
        Form::Bf16 => vec![part("", Dtype::BF16, dims, floats(2, 0x81, 0x3c, random))],
        Form::F16 => vec![part("", Dtype::F16, dims, floats(2, 0xab, 0x10, random))],
        Form::Fp8 => {
            let codes = floats(1, 0xbf, 0, random);
            let [stack @ .., rows, columns] = dims else { panic!("{name} is no matrix") };
            let blocks = [stack, &[rows.div_ceil(128), columns.div_ceil(128)]].concat();
            let count: usize = blocks.iter().product();
            let scales = (0..count).flat_map(|_| (random.next() as u16 as f32 / 1e5).to_le_bytes()).collect();
            vec![part("", Dtype::F8_E4M3, dims, codes), part("_scale_inv", Dtype::F32, &blocks, scales)]
        }
        Form::Mxfp4 => {
            let codes = random.bytes(count / 2);
            let scales = random.bytes(count / 32).into_iter().map(|byte| 118 + byte % 8).collect();
            let packed = part("_packed", Dtype::U8, &with_last(2), codes);
            vec![packed, part("_scale", Dtype::U8, &with_last(32), scales)]
        }
    }
}
