//! What is wrong with a quantised folder is said by name.

use std::fs::OpenOptions;

use checkpoint::{Checkpoint, Error, Wanted};
use safetensors::Dtype;
use serde_json::{Value, json};

use crate::folder::{Tensors, folder, open};
use crate::formats::{flat, glm, is_expert, k3, tensors};
use crate::synthetic::Form;

const PACKED: &str = "model.layers.2.block_sparse_moe.experts.1.w2.weight_packed";
const SCALE: &str = "model.layers.2.block_sparse_moe.experts.1.w2.weight_scale";
const PLAIN: &str = "model.layers.2.block_sparse_moe.experts.1.w2.weight";
const FP8: &str = "model.layers.3.self_attn.q_b_proj.weight";
const SCALE_INV: &str = "model.layers.3.self_attn.q_b_proj.weight_scale_inv";

fn packed() -> Tensors {
    flat(&tensors(&k3(), |name| if is_expert(name) { Form::Mxfp4 } else { Form::Bf16 }))
}

fn blocks() -> Tensors {
    flat(&tensors(&glm(), |name| {
        if name.contains("_b_proj") && name.contains("q_b") { Form::Fp8 } else { Form::Bf16 }
    }))
}

/// What is said of a folder, wherever it is first noticed.
fn refusal(config: &Value, tensors: &Tensors, wanted: &Wanted) -> String {
    let dir = folder(config, tensors);
    let values = |checkpoint: Checkpoint| -> Result<(), Error> {
        checkpoint.weights().iter().try_for_each(|weight| checkpoint.assemble(weight).map(drop))
    };
    Checkpoint::open(dir.path(), wanted)
        .and_then(values)
        .expect_err("the folder should be refused")
        .to_string()
}

type Change = fn(&mut Tensors);

#[test]
fn what_is_wrong_with_codes_and_scales_is_said_by_name() {
    let k3_cases: [(Change, &str); 9] = [
        (|all| drop(all.remove(SCALE)), "experts.1.w2.weight"),
        (|all| drop(all.remove(PACKED)), "experts.1.w2.weight is missing"),
        (|all| all.get_mut(PACKED).unwrap().0 = Dtype::I8, "weight_packed: format I8 is not U8"),
        (|all| all.get_mut(SCALE).unwrap().0 = Dtype::F8_E4M3, "weight_scale: format F8_E4M3 is not U8"),
        (|all| all.get_mut(SCALE).unwrap().1.reverse(), "weight_scale: has shape [2, 64]"),
        (|all| all.get_mut(PACKED).unwrap().1.reverse(), "weight_packed: has shape"),
        (|all| all.get_mut(SCALE).unwrap().2[5] = 255, "weight_scale: scale 5 is 255, not finite"),
        (|all| all.get_mut(SCALE).unwrap().2[6] = 253, "weight_scale: scale 6 is 253, not finite"),
        (
            |all| drop(all.insert(PLAIN.to_owned(), (Dtype::BF16, vec![64, 64], vec![0; 8192]))),
            "experts.1.w2.weight is there as well, not packed",
        ),
    ];
    for (change, said) in k3_cases {
        let mut all = packed();
        change(&mut all);
        // Packed as they are, and unpacked.
        for int8 in [false, true] {
            let refused = refusal(&k3(), &all, &Wanted { int8, ..Wanted::default() });
            assert!(refused.contains(said), "{said}: {refused}");
        }
    }
    let glm_cases: [(Change, &str); 5] = [
        (|all| drop(all.remove(SCALE_INV)), "q_b_proj.weight: has no"),
        (|all| all.get_mut(SCALE_INV).unwrap().0 = Dtype::I32, "weight_scale_inv: format I32 is not F32"),
        (|all| all.get_mut(FP8).unwrap().2[9] = 0x7f, "q_b_proj.weight: value 9 is NaN"),
        (|all| all.get_mut(FP8).unwrap().2[9] = 0xff, "q_b_proj.weight: value 9 is NaN"),
        (|all| all.get_mut(SCALE_INV).unwrap().2.copy_from_slice(&f32::INFINITY.to_le_bytes()), "value"),
    ];
    for (change, said) in glm_cases {
        let mut all = blocks();
        change(&mut all);
        let refused = refusal(&glm(), &all, &Wanted::default());
        assert!(refused.contains(said), "{said}: {refused}");
    }
    let mut stray = flat(&tensors(&glm(), |_| Form::Bf16));
    stray.insert(SCALE_INV.to_owned(), (Dtype::F32, vec![1, 1], vec![0; 4]));
    let refused = refusal(&glm(), &stray, &Wanted::default());
    assert!(refused.contains("weight_scale_inv: the model has no use for it"), "{refused}");
}

#[test]
fn a_value_too_large_for_bf16_is_refused_there_only() {
    let mut all = flat(&tensors(&k3(), |_| Form::F32));
    all.get_mut("lm_head.weight").unwrap().2[8..12].copy_from_slice(&f32::MAX.to_le_bytes());
    let dir = folder(&k3(), &all);
    let checkpoint = open(dir.path());
    assert!(checkpoint.weights().iter().all(|weight| checkpoint.assemble(weight).is_ok()));
    let wanted = Wanted { float: model::weights::Float::Bf16, ..Wanted::default() };
    let refused = refusal(&k3(), &all, &wanted);
    assert!(refused.contains("lm_head.weight: value 2 is 3402823"), "{refused}");
}

#[test]
fn the_first_faults_are_named_and_the_rest_counted() {
    let mut all = packed();
    all.retain(|name, _| !name.contains("input_layernorm"));
    for spare in ["spare.a", "spare.b"] {
        all.insert(spare.to_owned(), (Dtype::F32, vec![1], vec![0; 4]));
    }
    let refused = refusal(&k3(), &all, &Wanted::default());
    assert!(
        refused.starts_with("weight layers.0.attention_norm: tensor model.layers.0.input_layernorm.weight")
    );
    assert!(refused.contains("; and ") && refused.ends_with(" more"), "{refused}");
    // No tensor is called useless because another one of its weight is missing.
    assert!(!refused.contains("no use"), "{refused}");
    for spare in ["spare.a", "spare.b"] {
        all.remove(spare);
    }
    all.extend(packed().into_iter().filter(|(name, _)| name.contains("input_layernorm")));
    all.remove("model.layers.1.input_layernorm.weight");
    let one = refusal(&k3(), &all, &Wanted::default());
    assert!(one.contains("layers.1.input_layernorm.weight is missing") && !one.contains(';'), "{one}");
}

#[test]
fn two_prefixes_for_one_tensor_are_refused() {
    let mut all = packed();
    let norm = all["model.norm.weight"].clone();
    all.insert("language_model.model.norm.weight".to_owned(), norm);
    let refused = refusal(&k3(), &all, &Wanted::default());
    assert!(refused.contains("model.norm.weight: is also in"), "{refused}");
}

#[test]
fn a_quantisation_that_is_not_served_is_refused_by_field() {
    let cases = [
        (json!({"quant_method": "gptq"}), "quant_method is \"gptq\""),
        (
            json!({"quant_method": "compressed-tensors", "format": "pack-quantized"}),
            "format is \"pack-quantized\"",
        ),
        (json!({"quant_method": "fp8"}), "weight_block_size is null"),
        (json!({"quant_method": "fp8", "weight_block_size": [1, 128]}), "weight_block_size is [1,128]"),
        (
            json!({"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "static"}),
            "activation_scheme is \"static\"",
        ),
        (
            json!({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized",
                "config_groups": {"a": {"input_activations": {"num_bits": 8}}}}),
            "input_activations is",
        ),
        (
            json!({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized",
                "config_groups": {"a": {"weights": {"group_size": 16}}}}),
            "group_size is 16",
        ),
        (json!(7), "quantization_config is 7"),
    ];
    let all = packed();
    for (section, said) in cases {
        let mut flat = k3();
        flat["quantization_config"] = section.clone();
        let nested = json!({"model_type": "kimi_k3", "text_config": flat.clone()});
        for config in [flat, nested] {
            let refused = refusal(&config, &all, &Wanted::default());
            assert!(refused.contains(said), "{said}: {refused}");
        }
    }
}

#[test]
fn a_read_that_fails_names_tensor_shard_and_offset() {
    let dir = folder(&k3(), &packed());
    let checkpoint = open(dir.path());
    let path = dir.path().join("model.safetensors");
    OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
    let refused = checkpoint.assemble(&checkpoint.weights()[0]).unwrap_err();
    let Error::Read { path: named, tensor, offset, .. } = &refused else { panic!("{refused}") };
    assert!(*named == path && tensor == "model.embed_tokens.weight" && *offset > 100);
    assert!(refused.to_string().contains("loading again is safe"));
    assert!(matches!(checkpoint.digest(), Err(Error::Read { .. })));
}
