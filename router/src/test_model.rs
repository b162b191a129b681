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
