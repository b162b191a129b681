"""Writes the last snapshot as a Hugging Face folder: `config.json`, `generation_config.json`, `model.safetensors` beside
the tokenizer's files. Weights are rounded to bfloat16, with the tensor names and shapes of the published Kimi-Linear
checkpoints (experts one by one, short convolutions apart, layers listed from 1)."""

import json

import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

import corpus
import model
import train


def configuration(c):
    full = [i + 1 for i in range(c.layers) if c.is_mla(i)]
    return {
        "architectures": ["KimiLinearForCausalLM"],
        "bos_token_id": corpus.BOS,
        "dtype": "float32",
        "eos_token_id": corpus.EOS,
        "first_k_dense_replace": 1,
        "head_dim": c.rope,
        "hidden_act": "silu",
        "hidden_size": c.hidden,
        "initializer_range": 0.02,
        "intermediate_size": c.dense,
        "kv_lora_rank": c.latent,
        "linear_attn_config": {
            "full_attn_layers": full,
            "head_dim": c.head,
            "kda_layers": [i + 1 for i in range(c.layers) if i + 1 not in full],
            "num_heads": c.heads,
            "short_conv_kernel_size": 4,
        },
        "mla_use_nope": True,
        "model_max_length": 4096,
        "model_type": "kimi_linear",
        "moe_intermediate_size": c.expert,
        "moe_layer_freq": 1,
        "moe_renormalize": True,
        "moe_router_activation_func": "sigmoid",
        "num_attention_heads": c.heads,
        "num_expert_group": 1,
        "num_experts": c.experts,
        "num_experts_per_token": c.chosen,
        "num_hidden_layers": c.layers,
        "num_key_value_heads": c.heads,
        "num_shared_experts": 1,
        "pad_token_id": corpus.PAD,
        "q_lora_rank": None,
        "qk_nope_head_dim": c.head,
        "qk_rope_head_dim": c.rope,
        "rms_norm_eps": c.eps,
        "routed_scaling_factor": c.scale,
        "tie_word_embeddings": False,
        "topk_group": 1,
        "use_cache": True,
        "use_grouped_topk": True,
        "v_head_dim": c.head,
        "vocab_size": c.vocab,
    }


def attention(c, index, w, at):
    """The mixer of one layer. Linear weights are [out, in] in a checkpoint, the transpose of ours."""
    out = {at + "o_proj.weight": w["o"].T}
    if c.is_mla(index):
        return out | {
            at + "q_proj.weight": w["q"].reshape(c.hidden, c.heads, -1).transpose(1, 2, 0).reshape(-1, c.hidden),
            at + "kv_a_proj_with_mqa.weight": w["kv_a"].T,
            at + "kv_a_layernorm.weight": w["kv_norm"],
            at + "kv_b_proj.weight": w["kv_b"].T,
        }
    for x in "qkv":
        out[f"{at}{x}_proj.weight"] = w[x].T
        out[f"{at}{x}_conv1d.weight"] = w["conv_" + x].T[:, None, :]
    for ours, theirs in dict(f_a="f_a_proj", f_b="f_b_proj", g_a="g_a_proj", g_b="g_b_proj", beta="b_proj").items():
        out[f"{at}{theirs}.weight"] = w[ours].T
    return out | {
        at + "A_log": w["A_log"].reshape(1, 1, -1, 1),
        at + "dt_bias": w["dt_bias"],
        at + "o_norm.weight": w["o_norm"],
    }


def feed_forward(c, index, w, bias, at):
    if index == 0:
        return {f"{at}mlp.{n}_proj.weight": w[n].T for n in ("gate", "up", "down")}
    at += "block_sparse_moe."
    out = {at + "gate.weight": w["router"].T, at + "gate.e_score_correction_bias": bias[index - 1]}
    for n, w_name in dict(gate="w1", up="w3", down="w2").items():
        for e in range(c.experts):
            out[f"{at}experts.{e}.{w_name}.weight"] = w[n][e].T
        out[f"{at}shared_experts.{n}_proj.weight"] = w[n][c.experts].T
    return out


def tensors(c, params, bias):
    out = {
        "model.embed_tokens.weight": params["embed"],
        "model.norm.weight": params["norm"],
        "lm_head.weight": params["head"].T,
    }
    for i in range(c.layers):
        w, at = model.of_layer(params, i), f"model.layers.{i}."
        out[at + "input_layernorm.weight"] = w["attn_norm"]
        out[at + "post_attention_layernorm.weight"] = w["mlp_norm"]
        out |= attention(c, i, w, at + "self_attn.") | feed_forward(c, i, w, bias, at)
    return out


def main():
    config = model.Config()
    trees, meta = train.load()
    stored = {
        n: np.ascontiguousarray(np.asarray(x, jnp.bfloat16)) for n, x in tensors(config, trees["params"], trees["bias"]["bias"]).items()
    }
    folder = corpus.FOLDER
    part = corpus.BUILD / "model.safetensors"
    save_file(stored, part, metadata={"format": "pt"})
    part.chmod(0o644)
    part.rename(folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(configuration(config), indent=2) + "\n")
    generation = {"bos_token_id": corpus.BOS, "eos_token_id": corpus.EOS, "pad_token_id": corpus.PAD}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    print(f"{sum(x.size for x in stored.values())} parameters after step {meta['step']}, {meta['tokens']} tokens seen")


if __name__ == "__main__":
    main()
