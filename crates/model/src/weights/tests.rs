use std::collections::HashMap;

use super::{Encoding, Float, Formats, Held, Source, WeightSpec, weights};
use crate::{
    Activation, Attention, Error, Family, Ffn, Kda, LatentExperts, Layer, Mla, ModelConfig, Moe, Mtp,
    MtpReads, Residual,
};

const F32: Encoding = Encoding::Float(Float::F32);

fn values(weight: &WeightSpec, tensors: &HashMap<&str, Vec<i32>>) -> Result<Vec<i32>, Error> {
    let mut out = Vec::new();
    weight.pieces(&|name| tensors.contains_key(name), &mut |piece| {
        out.extend(&tensors[piece.tensor][piece.start..piece.start + piece.len]);
    })?;
    assert_eq!(out.len(), weight.elements());
    Ok(out)
}

fn tensor(name: &str, dims: &[usize]) -> Source {
    Source::tensor([name.to_owned()], dims)
}

#[test]
fn rows_joins_and_columns_nest() {
    let tensors = HashMap::from([("a", (0..12).collect()), ("b", (100..106).collect())]);
    let rows = |start| Source::Rows { of: Box::new(tensor("a", &[4, 3])), start, rows: 2 };
    // Two rows of `a` beside `b`, cut again so that the cut begins inside a row of the columns.
    let beside = Source::Columns { parts: vec![rows(1), tensor("b", &[2, 3])], rows: 2 };
    let source =
        Source::Join(vec![Source::Rows { of: Box::new(beside.clone()), start: 1, rows: 1 }, rows(0)]);
    let weight = WeightSpec { name: "w".to_owned(), cut: None, encoding: F32, dims: vec![4, 3], source };
    assert_eq!(values(&weight, &tensors).unwrap(), [6, 7, 8, 103, 104, 105, 0, 1, 2, 3, 4, 5]);
    let weight =
        WeightSpec { name: "w".to_owned(), cut: None, encoding: F32, dims: vec![2, 6], source: beside };
    assert_eq!(values(&weight, &tensors).unwrap(), [3, 4, 5, 100, 101, 102, 6, 7, 8, 103, 104, 105]);
}

#[test]
fn the_first_complete_alternative_is_taken_and_none_is_an_error() {
    let halves = Source::Join(vec![tensor("left", &[1]), tensor("right", &[1])]);
    let source = Source::Either(vec![halves, tensor("whole", &[2])]);
    let weight = WeightSpec { name: "w".to_owned(), cut: None, encoding: F32, dims: vec![2], source };
    let half = HashMap::from([("left", vec![1]), ("whole", vec![5, 6])]);
    assert_eq!(values(&weight, &half).unwrap(), [5, 6]);
    let nothing = HashMap::from([("left", vec![1])]);
    let error = values(&weight, &nothing).unwrap_err();
    assert!(matches!(error, Error::TensorMissing { weight, tensor } if weight == "w" && tensor == "right"));
}

fn hybrid() -> ModelConfig {
    let kda = Layer { attention: Attention::Kda, ffn: Ffn::Moe };
    let mla = Layer { attention: Attention::Mla, ffn: Ffn::Moe };
    let dense = Layer { attention: Attention::Kda, ffn: Ffn::Dense };
    ModelConfig {
        family: Family::KimiLinear,
        vocabulary: 7,
        hidden: 4,
        layers: vec![dense, kda, mla, kda, mla],
        kda: Kda { heads: 2, dim: 3, conv_kernel: 4, decay_bound: None, full_gate: false },
        mla: Mla {
            heads: 2,
            kv_lora: 5,
            rope: 1,
            nope: 3,
            value: 2,
            q_lora: None,
            gated: false,
            norm_eps: 1e-6,
            indexer: None,
        },
        dense_inner: 6,
        moe: Some(Moe {
            experts: 3,
            top_k: 2,
            shared: 1,
            inner: 2,
            scale: 1.0,
            renormalise: true,
            latent: None,
        }),
        activation: Activation::Swiglu,
        residual: Residual::Sum,
        mtp: None,
        rms_eps: 1e-5,
        context: 64,
        eos: vec![2],
        bos: None,
        tied: false,
    }
}

#[test]
fn packed_experts_and_split_rows_name_the_tensors_that_quantised_checkpoints_hold() {
    let mut config = hybrid();
    let latent = Some(LatentExperts { width: 64, normed: true });
    config.moe = config.moe.map(|moe| Moe { inner: 32, latent, ..moe });
    config.mtp = Some(Mtp { reads: MtpReads::BeforeNorm, share_index: false });
    let formats = Formats { experts: Held::Mxfp4, matrices: Held::Int8, joined: false, ..Formats::default() };
    let all = weights(&config, &formats);
    let of = |name: &str| all.iter().find(|weight| weight.name == name).unwrap();
    assert_eq!(of("group.0.moe.in.packed").dims, [2, 3, 32, 64]);
    assert_eq!(of("group.0.moe.in.scales").dims, [2, 3, 2, 64]);
    assert_eq!(of("mtp.moe.out.packed").dims, [64, 16, 3]);
    assert_eq!(of("layers.0.kda.project.key.int8").dims, [6, 4]);
    assert_eq!(of("layers.0.kda.project.key.scales").dims, [6]);
    let mut names = Vec::new();
    let exists =
        |name: &str| !name.contains("gate_up") && !name.contains("experts.down") && !name.contains("mlp.exp");
    of("group.0.moe.in.packed").pieces(&exists, &mut |piece| names.push(piece.tensor.to_owned())).unwrap();
    assert_eq!(names[0], "model.layers.1.block_sparse_moe.experts.0.w1.weight_packed");
    assert_eq!(names.len(), 12);
}

#[test]
fn a_hybrid_model_takes_each_tensor_once_and_stacks_the_repeated_group() {
    let config = hybrid();
    let all = weights(&config, &Formats::default());
    let of = |name: &str| all.iter().find(|weight| weight.name == name).unwrap();
    assert_eq!(of("group.1.mla.key").dims, [2, 2, 3, 5]);
    assert_eq!(of("group.0.moe.out").dims, [2, 4, 3, 2]);
    assert_eq!(of("layers.0.kda.project").dims, [3 * 6 + 2 * 3 + 2, 4]);
    let mut taken: HashMap<String, usize> = HashMap::new();
    for weight in &all {
        let mut elements = 0;
        // Only the published names exist.
        let published = |name: &str| {
            !name.contains("experts.gate_up") && !name.contains(".conv1d") && !name.contains("forget")
        };
        weight
            .pieces(&published, &mut |piece| {
                elements += piece.len;
                *taken.entry(piece.tensor.to_owned()).or_default() += piece.len;
            })
            .unwrap();
        assert_eq!(elements, weight.elements(), "{}", weight.name);
    }
    assert_eq!(taken["model.layers.3.self_attn.k_conv1d.weight"], 6 * 4);
    assert_eq!(taken["model.layers.4.self_attn.kv_b_proj.weight"], 2 * 5 * 5);
    assert_eq!(taken["lm_head.weight"], 28);
}
