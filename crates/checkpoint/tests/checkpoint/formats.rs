//! Every format a tensor may be stored in, against the format's definition value by value.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use checkpoint::{Checkpoint, Wanted};
use half::{bf16, f16};
use model::weights::{Encoding, Float, Held, WeightSpec};
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};

use crate::folder::{Tensors, f32s, folder, open, repository, store};
use crate::synthetic::{Form, Part, Random, config, needed, stored};

/// A K3 whose experts can be packed.
pub(crate) fn k3() -> Value {
    let changes = json!({
        "moe_intermediate_size": 64, "routed_expert_hidden_size": 64, "num_experts": 3,
        "quantization_config": {
            "quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized",
            "config_groups": {"group_0": {
                "weights": {"num_bits": 4, "group_size": 32, "type": "float"}, "input_activations": null
            }},
        },
    });
    config("k3-1", &changes)
}

/// A GLM with matrices of more than one block, ragged at the edges.
pub(crate) fn glm() -> Value {
    let changes = json!({
        "hidden_size": 136, "intermediate_size": 160,
        "quantization_config": {
            "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]
        },
    });
    config("glm-1", &changes)
}

pub(crate) fn is_expert(name: &str) -> bool {
    name.contains(".experts.")
}

/// What GLM's published files have in FP8.
fn is_fp8(name: &str) -> bool {
    is_expert(name)
        || ["q_a_proj", "q_b_proj", "kv_a_proj", "mlp.up_proj"].iter().any(|part| name.contains(part))
}

/// A value of a stored tensor, by the definition of its form.
fn value(parts: &[Part], at: usize) -> f32 {
    let [values, scales @ ..] = parts else { panic!("no parts") };
    let raw = |size: usize| &values.bytes[size * at..size * (at + 1)];
    match values.dtype {
        Dtype::F32 => f32::from_le_bytes(raw(4).try_into().unwrap()),
        Dtype::BF16 => bf16::from_le_bytes(raw(2).try_into().unwrap()).to_f32(),
        Dtype::F16 => f16::from_le_bytes(raw(2).try_into().unwrap()).to_f32(),
        Dtype::F8_E4M3 => {
            let (rows, columns) = (values.dims[values.dims.len() - 2], values.dims[values.dims.len() - 1]);
            let (matrix, row, column) = (at / columns / rows, at / columns % rows, at % columns);
            let block = (matrix * rows.div_ceil(128) + row / 128) * columns.div_ceil(128) + column / 128;
            let code = raw(1)[0];
            let (exponent, fraction) = (i32::from(code >> 3 & 15), f32::from(code & 7));
            let magnitude = match exponent {
                0 => fraction * 2f32.powi(-9),
                _ => (8.0 + fraction) * 2f32.powi(exponent - 10),
            };
            let sign = if code > 127 { -1.0 } else { 1.0 };
            sign * magnitude * f32s(&scales[0].bytes)[block]
        }
        Dtype::U8 => {
            let code = values.bytes[at / 2] >> (4 * (at % 2)) & 15;
            let magnitude = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(code & 7)];
            let sign = if code > 7 { -1.0 } else { 1.0 };
            sign * magnitude * 2f32.powi(i32::from(scales[0].bytes[at / 32]) - 127)
        }
        other => panic!("{other}"),
    }
}

/// A model's tensors, all in the form that `form` says, by name.
pub(crate) fn tensors(config: &Value, form: impl Fn(&str) -> Form) -> BTreeMap<String, Vec<Part>> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let of = |(name, dims): (String, Vec<usize>)| {
        let parts = stored(&name, &dims, form(&name), &mut random);
        (name, parts)
    };
    needed(config).into_iter().map(of).collect()
}

pub(crate) fn flat(parts: &BTreeMap<String, Vec<Part>>) -> Tensors {
    let own = |part: &Part| (part.name.clone(), (part.dtype, part.dims.clone(), part.bytes.clone()));
    parts.values().flatten().map(own).collect()
}

/// The f32 values that a weight is to be made of.
fn expected(weight: &WeightSpec, parts: &BTreeMap<String, Vec<Part>>) -> Vec<f32> {
    let mut values = Vec::new();
    let visit = &mut |piece: model::weights::Piece<'_>| {
        let parts = &parts[piece.tensor];
        values.extend((piece.start..piece.start + piece.len).map(|at| value(parts, at)));
    };
    weight.pieces(&|name| parts.contains_key(name), visit).unwrap();
    values
}

/// Every weight is what its encoding says of the tensors' values.
fn check(checkpoint: &Checkpoint, parts: &BTreeMap<String, Vec<Part>>) {
    let raw: HashMap<&str, &[u8]> =
        parts.values().flatten().map(|part| (part.name.as_str(), part.bytes.as_slice())).collect();
    for weight in checkpoint.weights() {
        let own = checkpoint.assemble(weight).unwrap();
        let wanted: Vec<u8> = match weight.encoding {
            Encoding::Float(Float::F32) => {
                expected(weight, parts).into_iter().flat_map(f32::to_le_bytes).collect()
            }
            Encoding::Float(Float::Bf16) => {
                let narrow = |value| bf16::from_f32(value).to_le_bytes();
                expected(weight, parts).into_iter().flat_map(narrow).collect()
            }
            Encoding::Packed | Encoding::PackedScales => {
                let mut bytes = Vec::new();
                let visit = &mut |piece: model::weights::Piece<'_>| {
                    bytes.extend(&raw[piece.tensor][piece.start..piece.start + piece.len]);
                };
                weight.pieces(&|name| raw.contains_key(name), visit).unwrap();
                turned(weight, &bytes)
            }
            Encoding::Int8 | Encoding::Int8Scales => {
                let values = expected(weight, parts);
                let rows = match weight.encoding {
                    Encoding::Int8 => weight.elements() / weight.dims.last().unwrap(),
                    _ => weight.elements(),
                };
                let row = |row: &[f32]| int8(row, weight.encoding);
                values.chunks(values.len() / rows).flat_map(row).collect()
            }
        };
        assert!(own == wanted, "{} as {:?}", weight.name, weight.encoding);
    }
}

/// Codes or scales, column by column; of codes the columns' two halves in one byte.
fn turned(weight: &WeightSpec, stored: &[u8]) -> Vec<u8> {
    let [.., width, rows] = weight.dims[..] else { panic!("{} is no matrix", weight.name) };
    let code = |matrix: &[u8], row: usize, column: usize| {
        matrix[row * width + column / 2] >> (4 * (column % 2)) & 15
    };
    let mut all = Vec::new();
    for matrix in stored.chunks(rows * width) {
        for (at, row) in (0..width).flat_map(|at| (0..rows).map(move |row| (at, row))) {
            all.push(match weight.encoding {
                Encoding::Packed => code(matrix, row, at) | code(matrix, row, width + at) << 4,
                _ => matrix[row * width + at],
            });
        }
    }
    all
}

fn int8(row: &[f32], encoding: Encoding) -> Vec<u8> {
    let largest = row.iter().map(|value| value.abs()).fold(0.0, f32::max);
    let scale = if largest == 0.0 { 1.0 } else { largest / 127.0 };
    if encoding == Encoding::Int8Scales {
        return scale.to_le_bytes().to_vec();
    }
    row.iter().map(|value| ((value / scale).round_ties_even() as i8).cast_unsigned()).collect()
}

type Choice = Box<dyn Fn(&str) -> Form>;

#[test]
fn every_form_becomes_every_encoding() {
    let mixed = |name: &str| match name.len() % 3 {
        0 => Form::F32,
        1 => Form::F16,
        _ => Form::Bf16,
    };
    let cases: [(Value, Choice); 4] = [
        (k3(), Box::new(move |name| if is_expert(name) { Form::Mxfp4 } else { mixed(name) })),
        (k3(), Box::new(|name| if name.contains("w2") { Form::Mxfp4 } else { Form::Bf16 })),
        (glm(), Box::new(|name| if is_fp8(name) { Form::Fp8 } else { Form::Bf16 })),
        (glm(), Box::new(|_| Form::F16)),
    ];
    for (config, form) in cases {
        let parts = tensors(&config, form);
        let dir = folder(&config, &flat(&parts));
        for (float, int8, joined) in
            [(Float::F32, false, true), (Float::Bf16, false, false), (Float::Bf16, true, true)]
        {
            let wanted = Wanted { float, int8, joined, drafts: true };
            check(&Checkpoint::open(dir.path(), &wanted).unwrap(), &parts);
        }
    }
}

#[test]
fn experts_stay_packed_when_all_are_and_floats_are_wanted() {
    let held = |form: &dyn Fn(&str) -> Form, int8| {
        let dir = folder(&k3(), &flat(&tensors(&k3(), form)));
        Checkpoint::open(dir.path(), &Wanted { int8, ..Wanted::default() }).unwrap().formats().experts
    };
    let all = |name: &str| if is_expert(name) { Form::Mxfp4 } else { Form::Bf16 };
    let most = |name: &str| if is_expert(name) && !name.contains("8.") { Form::Mxfp4 } else { Form::Bf16 };
    assert_eq!(held(&all, false), Held::Mxfp4);
    assert_eq!(held(&all, true), Held::Int8);
    assert_eq!(held(&most, false), Held::Float);
    assert_eq!(held(&|_| Form::Bf16, false), Held::Float);
}

#[test]
fn prefixes_and_vision_towers_change_neither_weights_nor_digest() {
    let parts = tensors(&k3(), |name| if is_expert(name) { Form::Mxfp4 } else { Form::Bf16 });
    let plain = folder(&k3(), &flat(&parts));
    let plain = open(plain.path());
    for prefix in ["language_model.model.", "model.language_model."] {
        let mut renamed = Tensors::new();
        for (name, tensor) in flat(&parts) {
            let name = match name.strip_prefix("model.") {
                Some(rest) => format!("{prefix}{rest}"),
                None => format!("language_model.{name}"),
            };
            renamed.insert(name, tensor);
        }
        renamed.insert("vision_tower.patch.weight".to_owned(), (Dtype::I64, vec![1], vec![0; 8]));
        let dir = folder(&k3(), &renamed);
        let renamed = open(dir.path());
        check(&renamed, &parts);
        assert_eq!(renamed.digest().unwrap(), plain.digest().unwrap());
    }
}

#[test]
fn without_drafts_nothing_of_their_layer_is_needed_or_read() {
    let config = k3();
    let mut parts = tensors(&config, |_| Form::Bf16);
    let dir = folder(&config, &flat(&parts));
    let wanted = Wanted { drafts: false, ..Wanted::default() };
    let whole = Checkpoint::open(dir.path(), &wanted).unwrap();
    assert!(whole.config().mtp.is_none() && open(dir.path()).config().mtp.is_some());
    parts.retain(|name, _| !name.starts_with("model.layers.9."));
    let dir = folder(&config, &flat(&parts));
    let without = Checkpoint::open(dir.path(), &wanted).unwrap();
    check(&without, &parts);
    assert_eq!(without.digest().unwrap(), whole.digest().unwrap());
    assert!(Checkpoint::open(dir.path(), &Wanted::default()).is_err());
}

#[test]
fn weights_of_many_blocks_are_shared_by_all_cores() {
    let config = config("k3-1", &json!({"vocab_size": 33_001}));
    let parts = tensors(&config, |_| Form::Bf16);
    let dir = folder(&config, &flat(&parts));
    let checkpoint = open(dir.path());
    check(&checkpoint, &parts);
    // The last block's last value.
    let mut poisoned = flat(&parts);
    let bytes = &mut poisoned.get_mut("lm_head.weight").unwrap().2;
    bytes.splice(bytes.len() - 2.., [0x80, 0x7f]);
    store(&dir.path().join("model.safetensors"), &poisoned);
    let checkpoint = open(dir.path());
    let head = checkpoint.weights().iter().find(|weight| weight.name == "head").unwrap();
    let refused = checkpoint.assemble(head).unwrap_err().to_string();
    assert!(refused.contains(&format!("lm_head.weight: value {} is inf", 33_001 * 32 - 1)), "{refused}");
}

/// A file's tensors, each of the model's with what it is stored in.
fn parts_of(dir: &Path) -> BTreeMap<String, Vec<Part>> {
    let bytes = std::fs::read(dir.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let part = |name: &str| {
        let view = file.tensor(name).ok()?;
        let (dtype, dims, bytes) = (view.dtype(), view.shape().to_vec(), view.data().to_vec());
        Some(Part { name: name.to_owned(), dtype, dims, bytes })
    };
    let mut parts = BTreeMap::new();
    for name in file.names().into_iter().filter(|name| !name.contains(".weight_scale")) {
        let plain = name.strip_suffix("_packed").unwrap_or(name);
        let scales = ["_scale", "_scale_inv"].into_iter().filter_map(|end| part(&format!("{plain}{end}")));
        parts.insert(plain.to_owned(), part(name).into_iter().chain(scales).collect());
    }
    parts
}

/// Written by compressed-tensors and by transformers.
#[test]
fn quantised_folders_of_others_are_read() {
    for (name, packed) in [("k3-mxfp4", true), ("glm-fp8", false)] {
        let dir = repository().join("oracle/fixtures").join(name);
        let parts = parts_of(&dir);
        for int8 in [false, true] {
            let checkpoint = Checkpoint::open(&dir, &Wanted { int8, ..Wanted::default() }).unwrap();
            check(&checkpoint, &parts);
            assert_eq!(checkpoint.formats().experts == Held::Mxfp4, packed && !int8, "{name}");
            assert_eq!(checkpoint.int8_error().is_empty(), !int8);
        }
    }
}
