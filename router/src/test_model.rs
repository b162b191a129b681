//! A checkpoint's folder without weights, for tests: a byte-level tokenizer in which each byte is a token.

use std::path::Path;

use serde_json::{Map, Value, json};

/// The end token.
pub(crate) const END: u32 = 256;

/// Writes config, tokenizer and chat template into `folder`.
pub(crate) fn write(folder: &Path) {
    let put = |name: &str, text: String| std::fs::write(folder.join(name), text).unwrap();
    put("config.json", config().to_string());
    put("tokenizer.json", tokenizer().to_string());
    put(
        "chat_template.jinja",
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}".to_owned(),
    );
}

/// Writes the config of a GLM-5.3-Flash, tiny but for its vocabulary, into `folder`: text is built in.
pub(crate) fn write_glm(folder: &Path) {
    let config = json!({
        "model_type": "glm5_next", "vocab_size": 154_880, "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 4, "first_k_dense_replace": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
        "q_lora_rank": 48, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 0, "v_head_dim": 16,
        "hidden_act": "silu", "index_topk": 32, "index_kpool": 4, "index_n_heads": 16, "index_head_dim": 16,
        "max_position_embeddings": 4096, "eos_token_id": 154_820,
        "linear_attn_config": {"num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4,
                               "kda_layers": [0, 1, 2], "full_attn_layers": [3]},
    });
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
}

/// The same of a Kimi K3.
pub(crate) fn write_k3(folder: &Path) {
    let text = json!({
        "model_type": "kimi_linear", "vocab_size": 163_840, "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 5, "first_k_dense_replace": 5, "num_attention_heads": 4, "num_key_value_heads": 4,
        "q_lora_rank": 48, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
        "mla_use_output_gate": true, "hidden_act": "situ", "activation_situ_beta": 4.0,
        "activation_situ_linear_beta": 25.0, "attn_res_block_size": 4, "max_position_embeddings": 4096,
        "eos_token_id": 163_586,
        "linear_attn_config": {"num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0,
                               "use_full_rank_gate": true, "kda_layers": [1, 2, 3], "full_attn_layers": [4, 5]},
    });
    let config = json!({"model_type": "kimi_k3", "text_config": text});
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
}

/// Longest prompt and output together.
pub(crate) const CONTEXT: u32 = 64;

fn config() -> Value {
    json!({
        "model_type": "kimi_linear", "vocab_size": END + 1, "model_max_length": CONTEXT, "eos_token_id": END,
        "hidden_act": "silu", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 2, "first_k_dense_replace": 2,
        "kv_lora_rank": 8, "q_lora_rank": null, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
        "linear_attn_config": {"full_attn_layers": [2], "kda_layers": [1], "head_dim": 8, "num_heads": 2,
                               "short_conv_kernel_size": 4},
        "mla_use_nope": true, "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
    })
}

fn tokenizer() -> Value {
    let mut vocab = Map::new();
    let mut next = 0x100_u32;
    for byte in 0..=255_u8 {
        let printable = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
        let code = if printable { u32::from(byte) } else { next };
        next += u32::from(!printable);
        vocab.insert(char::from_u32(code).unwrap().to_string(), json!(byte));
    }
    let level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    json!({
        "version": "1.0",
        "added_tokens": [{"id": END, "content": "<|end|>", "special": true, "single_word": false,
                          "lstrip": false, "rstrip": false, "normalized": false}],
        "pre_tokenizer": level, "decoder": level,
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    })
}
