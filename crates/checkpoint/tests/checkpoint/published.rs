//! A folder that `transformers` wrote, as it is and with one thing wrong at a time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use checkpoint::{Checkpoint, Digest, Wanted};
use half::{bf16, f16};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::folder::{Tensors, assembled, f32s, open, repository, store};

fn published() -> PathBuf {
    repository().join("oracle/fixtures/five-published")
}

/// The fixture's tensors, widened to f32 so that a test can narrow them as it likes.
fn load(dir: &Path) -> Tensors {
    let bytes = std::fs::read(dir.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let widen = |raw: &[u8]| bf16::from_le_bytes(raw.try_into().unwrap()).to_f32().to_le_bytes();
    let owned = |view: TensorView<'_>| {
        let bytes = match view.dtype() {
            Dtype::F32 => view.data().to_vec(),
            Dtype::BF16 => view.data().chunks(2).flat_map(widen).collect(),
            other => panic!("{other} in the fixture"),
        };
        (Dtype::F32, view.shape().to_vec(), bytes)
    };
    tensors.tensors().into_iter().map(|(name, view)| (name, owned(view))).collect()
}

/// A copy of the published fixture with its tensors changed.
fn folder(change: impl FnOnce(&mut Tensors)) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(published().join("config.json"), dir.path().join("config.json")).unwrap();
    let mut tensors = load(&published());
    change(&mut tensors);
    store(&dir.path().join("model.safetensors"), &tensors);
    dir
}

fn values(checkpoint: &Checkpoint) -> Vec<Vec<f32>> {
    assembled(checkpoint).iter().map(|bytes| f32s(bytes)).collect()
}

fn refusal(change: impl FnOnce(&mut Tensors)) -> String {
    Checkpoint::open(folder(change).path(), &Wanted::default())
        .expect_err("the folder should be refused")
        .to_string()
}

#[test]
fn every_weight_is_assembled_and_the_digest_ignores_the_shards() {
    let whole = folder(|_| {});
    let whole = open(whole.path());
    let expected = values(&whole);
    assert!(values(&open(&published())) == expected, "as published, in bf16");
    let tensors = load(&published());
    let stored: usize = tensors.values().map(|(_, _, bytes)| bytes.len() / 4).sum();
    assert_eq!(expected.iter().map(Vec::len).sum::<usize>(), stored);
    let embedding = &tensors["model.embed_tokens.weight"].2;
    assert!(expected.contains(&f32s(embedding)), "the embedding is a weight as it stands");

    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(published().join("config.json"), dir.path().join("config.json")).unwrap();
    let mut shards = [Tensors::new(), Tensors::new()];
    let mut index = BTreeMap::new();
    for (at, (name, tensor)) in tensors.into_iter().enumerate() {
        index.insert(name.clone(), format!("shard-{}.safetensors", at % 2));
        shards[at % 2].insert(name, tensor);
    }
    for (at, shard) in shards.iter().enumerate() {
        store(&dir.path().join(format!("shard-{at}.safetensors")), shard);
    }
    let index = serde_json::json!({"metadata": {"total_size": 1}, "weight_map": index});
    std::fs::write(dir.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
    let sharded = open(dir.path());
    assert_eq!(values(&sharded), expected);
    assert_eq!(sharded.digest().unwrap(), whole.digest().unwrap());
}

/// The tensors under the names and in the shapes that a dump of `transformers`' module has.
fn dump(tensors: &Tensors) -> Tensors {
    let mut renamed = Tensors::new();
    let join = |parts: &[&str], dims: Vec<usize>| {
        let bytes = parts.iter().flat_map(|name| tensors[*name].2.clone()).collect();
        (Dtype::F32, dims, bytes)
    };
    for (name, (_, dims, _)) in tensors {
        let leaf_at = ["self_attn.", "block_sparse_moe."].iter().find_map(|part| name.find(part));
        let (layer, leaf) = name.split_at(leaf_at.unwrap_or(name.len()));
        match leaf {
            "self_attn.q_conv1d.weight" => {
                let parts = ["q", "k", "v"].map(|which| format!("{layer}self_attn.{which}_conv1d.weight"));
                let joined = join(&parts.each_ref().map(String::as_str), vec![3 * dims[0], 1, dims[2]]);
                renamed.insert(format!("{layer}self_attn.conv1d.weight"), joined);
            }
            "block_sparse_moe.experts.0.w1.weight" => {
                let experts = (0..)
                    .take_while(|e| {
                        tensors.contains_key(&format!("{layer}block_sparse_moe.experts.{e}.w1.weight"))
                    })
                    .count();
                let names = |which: &[&str]| -> Vec<String> {
                    let of = |e| {
                        which.iter().map(move |w| format!("{layer}block_sparse_moe.experts.{e}.{w}.weight"))
                    };
                    (0..experts).flat_map(of).collect()
                };
                for (fused, which, rows, columns) in [
                    ("gate_up_proj", &["w1", "w3"][..], 2 * dims[0], dims[1]),
                    ("down_proj", &["w2"][..], dims[1], dims[0]),
                ] {
                    let names = names(which);
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    renamed.insert(
                        format!("{layer}mlp.experts.{fused}"),
                        join(&names, vec![experts, rows, columns]),
                    );
                }
            }
            _ if leaf.ends_with("_conv1d.weight") || leaf.starts_with("block_sparse_moe.experts.") => {}
            _ => {
                let gate =
                    ["f_a_proj", "f_b_proj", "dt_bias", "A_log"].iter().any(|part| leaf.contains(part));
                let leaf =
                    if gate { leaf.replace("self_attn.", "self_attn.forget_gate.") } else { leaf.to_owned() };
                let leaf = leaf.replace("block_sparse_moe.", "mlp.");
                renamed.insert(format!("{layer}{leaf}"), tensors[name].clone());
            }
        }
    }
    renamed
}

#[test]
fn both_namings_give_the_same_weights() {
    let dir = folder(|tensors| *tensors = dump(tensors));
    let dumped = open(dir.path());
    assert!(values(&dumped) == values(&open(&published())));
}

#[test]
fn every_folder_that_others_wrote_is_read() {
    let fixtures = std::fs::read_dir(repository().join("oracle/fixtures")).unwrap();
    let folders: Vec<PathBuf> =
        fixtures.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    assert!(folders.contains(&published()));
    for folder in folders {
        let checkpoint = open(&folder);
        for (weight, bytes) in checkpoint.weights().iter().zip(assembled(&checkpoint)) {
            let size = if weight.encoding.is_packed() { 1 } else { 4 };
            assert_eq!(bytes.len(), size * weight.elements(), "{} of {}", weight.name, folder.display());
        }
    }
}

#[test]
fn the_digest_sees_one_bit_one_name_and_one_shape() {
    let digest = |change: &dyn Fn(&mut Tensors)| -> Digest { open(folder(change).path()).digest().unwrap() };
    let name = "model.norm.weight";
    let plain = digest(&|_| {});
    let bit = digest(&|tensors| tensors.get_mut(name).unwrap().2[0] ^= 1);
    let shape = digest(&|tensors| tensors.get_mut(name).unwrap().1.insert(0, 1));
    assert!(plain != bit && plain != shape && bit != shape);
    assert_ne!(plain, open(&published()).digest().unwrap(), "another format");
    assert_eq!(plain.to_string().len(), 32);
}

#[test]
fn narrow_floats_are_widened_exactly() {
    let plain = values(&open(&published()));
    type Narrow = fn(f32) -> ([u8; 2], f32);
    let to_bf16: Narrow = |value| (bf16::from_f32(value).to_le_bytes(), bf16::from_f32(value).to_f32());
    let to_f16: Narrow = |value| (f16::from_f32(value).to_le_bytes(), f16::from_f32(value).to_f32());
    for (dtype, narrow) in [(Dtype::BF16, to_bf16), (Dtype::F16, to_f16)] {
        let dir = folder(|tensors| {
            for (own, _, bytes) in tensors.values_mut() {
                *own = dtype;
                *bytes = f32s(bytes).into_iter().flat_map(|value| narrow(value).0).collect();
            }
        });
        let widened = values(&open(dir.path()));
        for (widened, plain) in widened.iter().flatten().zip(plain.iter().flatten()) {
            assert_eq!(*widened, narrow(*plain).1);
        }
    }
}

#[test]
fn what_is_wrong_with_a_tensor_is_said_by_its_name() {
    let norm = "model.norm.weight";
    let missing = refusal(|tensors| drop(tensors.remove(norm)));
    assert!(missing.contains(norm) && missing.contains("missing"), "{missing}");
    let extra = refusal(|tensors| {
        let copy = tensors[norm].clone();
        tensors.insert("model.spare.weight".to_owned(), copy);
    });
    assert!(extra.contains("model.spare.weight: the model has no use for it"), "{extra}");
    let misshapen = refusal(|tensors| {
        let (_, dims, _) = tensors.get_mut("lm_head.weight").unwrap();
        dims.reverse();
    });
    assert!(misshapen.contains("lm_head.weight: has shape"), "{misshapen}");
    let format = refusal(|tensors| tensors.get_mut(norm).unwrap().0 = Dtype::I32);
    assert!(format.contains(norm) && format.contains("I32 is not F32"), "{format}");
}

#[test]
fn a_value_that_is_not_finite_is_found() {
    for poison in [f32::NAN, f32::NEG_INFINITY] {
        let dir = folder(|tensors| {
            let bytes = &mut tensors.get_mut("model.norm.weight").unwrap().2;
            bytes[12..16].copy_from_slice(&poison.to_le_bytes());
        });
        let checkpoint = open(dir.path());
        let found: Vec<String> = checkpoint
            .weights()
            .iter()
            .filter_map(|weight| checkpoint.assemble(weight).err())
            .map(|error| error.to_string())
            .collect();
        assert_eq!(found.len(), 1);
        assert!(found[0].contains(&format!("model.norm.weight: value 3 is {poison}")), "{}", found[0]);
    }
}

#[test]
fn a_truncated_file_is_refused() {
    let dir = folder(|_| {});
    let path = dir.path().join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    for length in [0, 7, 8, 100, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let refused = Checkpoint::open(dir.path(), &Wanted::default()).expect_err("truncated").to_string();
        assert!(refused.contains("model.safetensors"), "{refused}");
    }
}
