use super::{Attention, Ffn, ModelConfig};
use crate::Error;

/// As published: layers numbered from 1.
const PUBLISHED: &str = r#"{
  "model_type": "kimi_linear", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96,
  "moe_intermediate_size": 16, "num_hidden_layers": 5, "first_k_dense_replace": 1, "num_attention_heads": 4,
  "num_key_value_heads": 4, "q_lora_rank": null, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
  "v_head_dim": 16, "mla_use_nope": true, "num_experts": 8, "num_experts_per_token": 2, "num_shared_experts": 1,
  "moe_router_activation_func": "sigmoid", "moe_renormalize": true, "routed_scaling_factor": 2.446,
  "num_expert_group": 1, "topk_group": 1, "hidden_act": "silu", "rms_norm_eps": 1e-5, "model_max_length": 1024,
  "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2, "moe_layer_freq": 1,
  "linear_attn_config": {"num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4,
                         "kda_layers": [1, 2, 3, 5], "full_attn_layers": [4]}
}"#;

/// The same model as `transformers` writes it.
const SAVED: &str = r#"{
  "model_type": "kimi_linear", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96,
  "moe_intermediate_size": 16, "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 4,
  "q_lora_rank": null, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
  "num_local_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "norm_topk_prob": true,
  "routed_scaling_factor": 2.446, "n_group": 1, "rms_norm_eps": 1e-5, "max_position_embeddings": 1024,
  "bos_token_id": 1, "eos_token_id": [2], "linear_head_dim": 16, "linear_num_heads": 4, "linear_conv_kernel_dim": 4,
  "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention"],
  "mlp_layer_types": ["dense", "sparse", "sparse", "sparse", "sparse"]
}"#;

#[test]
fn both_spellings_of_a_config_mean_the_same_model() {
    let config = ModelConfig::from_json(PUBLISHED).unwrap();
    assert_eq!(config, ModelConfig::from_json(SAVED).unwrap());
    let kinds: Vec<_> = config.layers.iter().map(|layer| (layer.attention, layer.ffn)).collect();
    assert_eq!(kinds[0], (Attention::Kda, Ffn::Dense));
    assert_eq!(kinds[3], (Attention::Mla, Ffn::Moe));
    let state = config.state();
    assert_eq!((state.latent_layers, state.latent_width, state.recurrent_layers), (1, 40, 4));
    assert_eq!(state.bytes_per_token(), 160);
    assert_eq!(state.bytes_per_slot(), 4 * (4 * 4 * 16 * 16 + 4 * 3 * 3 * 64));
}

#[test]
fn what_is_not_served_is_refused_by_the_fields_name() {
    let cases = [
        (r#""hidden_act": "silu""#, r#""hidden_act": "gelu""#, "hidden_act"),
        (r#""hidden_size": 64"#, r#""hidden_size": 0"#, "hidden_size"),
        (r#""hidden_size": 64,"#, "", "hidden_size"),
        (r#""num_key_value_heads": 4"#, r#""num_key_value_heads": 2"#, "num_key_value_heads"),
        (r#""num_expert_group": 1"#, r#""num_expert_group": 2"#, "num_expert_group"),
        (r#""num_experts_per_token": 2"#, r#""num_experts_per_token": 9"#, "num_experts_per_token"),
        (r#""full_attn_layers": [4]"#, r#""full_attn_layers": [5]"#, "kda_layers"),
        (r#""full_attn_layers": [4]"#, r#""full_attn_layers": [6]"#, "full_attn_layers"),
        (r#""full_attn_layers": [4]"#, r#""full_attn_layers": [0]"#, "full_attn_layers"),
        (r#""short_conv_kernel_size": 4"#, r#""short_conv_kernel_size": 1"#, "linear_conv_kernel_dim"),
        (r#""eos_token_id": 2"#, r#""eos_token_id": 96"#, "eos_token_id"),
        (r#""eos_token_id": 2"#, r#""eos_token_id": "two""#, "eos_token_id"),
        (r#""num_heads": 4"#, r#""num_heads": 4, "gate_lower_bound": -5"#, "gate_lower_bound"),
        (r#""bos_token_id": 1"#, r#""quantization_config": {}"#, "quantization_config"),
        (r#""rms_norm_eps": 1e-5"#, r#""rms_norm_eps": "small""#, "rms_norm_eps"),
        (r#""kimi_linear""#, r#""llama""#, "model_type"),
    ];
    for (from, to, name) in cases {
        assert!(PUBLISHED.contains(from), "{from}");
        let error = ModelConfig::from_json(&PUBLISHED.replacen(from, to, 1)).unwrap_err();
        let field = match &error {
            Error::Missing { field } | Error::Unsupported { field, .. } => *field,
            other => panic!("{to}: {other}"),
        };
        assert_eq!(field, name, "{to}: {error}");
    }
    assert!(matches!(ModelConfig::from_json("[]"), Err(Error::Json(_))));
}

/// A K3 as published: layers numbered from 1, the text model nested.
const K3: &str = r#"{
  "model_type": "kimi_k3", "text_config": {
  "model_type": "kimi_linear", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 5,
  "first_k_dense_replace": 1, "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 48, "kv_lora_rank": 32,
  "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "mla_use_output_gate": true, "num_experts": 8,
  "num_experts_per_token": 2, "num_shared_experts": 2, "moe_intermediate_size": 32, "routed_expert_hidden_size": 32,
  "latent_moe_use_norm": true, "hidden_act": "situ", "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0,
  "attn_res_block_size": 4, "num_nextn_predict_layers": 1, "max_position_embeddings": 1024, "eos_token_id": 2,
  "linear_attn_config": {"num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0,
                         "use_full_rank_gate": true, "kda_layers": [1, 2, 3], "full_attn_layers": [4, 5]}}
}"#;

/// A GLM as published: layers numbered from 0.
const GLM: &str = r#"{
  "model_type": "glm5_next", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
  "first_k_dense_replace": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 48, "kv_lora_rank": 32,
  "qk_nope_head_dim": 16, "qk_rope_head_dim": 0, "v_head_dim": 16, "n_routed_experts": 8, "num_experts_per_tok": 2,
  "n_shared_experts": 1, "moe_intermediate_size": 32, "hidden_act": "silu", "swiglu_limit": 10.0, "hc_mult": 4,
  "index_topk": 32, "index_kpool": 4, "index_n_heads": 16, "index_head_dim": 16, "max_position_embeddings": 1024,
  "num_nextn_predict_layers": 1, "routed_scaling_factor": 2.5, "eos_token_id": [2, 3],
  "linear_attn_config": {"num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0,
                         "kda_layers": [0, 1, 2], "full_attn_layers": [3]}
}"#;

#[test]
fn k3_and_glm_are_read_with_their_own_counting_of_layers() {
    let k3 = ModelConfig::from_json(K3).unwrap();
    assert_eq!(k3.layers[3].attention, Attention::Mla);
    assert_eq!(k3.layers[2].attention, Attention::Kda);
    assert_eq!(k3.state().latent_layers, 3);
    assert!(k3.kda.full_gate && k3.mla.gated && k3.moe.unwrap().latent.is_some());
    assert_eq!(k3.without_mtp().state().latent_layers, 2);
    let glm = ModelConfig::from_json(GLM).unwrap();
    assert_eq!(glm.layers[3].attention, Attention::Mla);
    assert_eq!(glm.mla.indexer.unwrap().chosen, 8);
    assert_eq!(glm.kda.decay_bound, Some(-5.0));
    let wrong = GLM.replace("\"index_topk\": 32", "\"index_topk\": 33");
    assert!(matches!(ModelConfig::from_json(&wrong), Err(Error::Unsupported { field: "index_topk", .. })));
    let wrong = K3.replace("situ\"", "silu\"");
    assert!(matches!(ModelConfig::from_json(&wrong), Err(Error::Unsupported { field: "hidden_act", .. })));
}
