"""Tiny random checkpoints of the GLM-5.3-Flash text model; `glm_judge.py` says what transformers computes with them."""

import torch

import checkpoint
import record
from glm_judge import Judge

SOURCE = "transformers 5.24.0, torch 2.15.0, float32, CPU"
STRICT = ("A_log", "dt_bias", "e_score_correction_bias", "gate.weight", "conv1d.weight", "_base", "_scale")

# Per fixture: layers, DSA layers (from 0), changes to `flat()`, and how weights are drawn and spelt.
FIXTURES = {
    "glm-1": dict(seed=41, layers=8, dsa=[3, 7]),
    "glm-2": dict(seed=42, layers=8, dsa=[2, 3, 5, 6, 7], kda=(2, 128), index_n_heads=32),
    "glm-3": dict(seed=43, layers=12, dsa=[3, 7, 11], index_topk=16, index_share_for_mtp_iteration=False, spell=dict(text=True, float32=True)),
    "glm-4": dict(seed=44, layers=8, dsa=[3, 7], dense=3, eos_token_id=[2, 5], spell=dict(published=True), draw=dict(decay=(0.7, 4.0), mlp=6.0)),
    "glm-5": dict(seed=45, layers=8, dsa=[3, 7], swiglu_limit=0.5, spell=dict(head=True), draw=dict(decay=(0.3, -7.0), common=0.7)),
}  # fmt: skip


def flat(layers, dsa, dense=2, kda=(2, 16), **changes):
    """config.json as transformers names its keys."""
    return {
        "architectures": ["Glm5NextForCausalLM"],
        "model_type": "glm5_next",
        "dtype": "bfloat16",
        "vocab_size": 80,
        "hidden_size": 32,
        "intermediate_size": 48,
        "moe_intermediate_size": 8,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "layer_types": ["indexed_attention" if i in dsa else "linear_attention" for i in range(layers)],
        "mlp_layer_types": ["dense"] * dense + ["sparse"] * (layers - dense),
        "first_k_dense_replace": dense,
        "linear_num_heads": kda[0],
        "linear_head_dim": kda[1],
        "linear_conv_kernel_dim": 4,
        "linear_lower_bound": -5.0,
        "q_lora_rank": 24,
        "kv_lora_rank": 24,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 0,
        "v_head_dim": 16,
        "index_n_heads": 16,
        "index_head_dim": 16,
        "index_topk": 32,
        "index_kpool": 4,
        "index_kpool_always_select_tail": True,
        "index_share_for_mtp_iteration": True,
        "n_routed_experts": 5,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "hidden_act": "silu",
        "swiglu_limit": 10.0,
        "hc_mult": 4,
        "hc_eps": 1e-6,
        "hc_sinkhorn_iters": 20,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 1024,
        "attention_bias": False,
        "tie_word_embeddings": False,
        "num_nextn_predict_layers": 1,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    } | changes


def mixer(c, kda):
    """Names and shapes of one layer's `self_attn.`"""
    d = c["hidden_size"]
    if kda:
        h, n = c["linear_num_heads"], c["linear_head_dim"]
        p = h * n
        out = {f"{x}_proj.weight": (p, d) for x in "qkv"} | {f"{x}_conv1d.weight": (p, 1, 4) for x in "qkv"}
        for x in "fg":
            out |= {f"{x}_a_proj.weight": (n, d), f"{x}_b_proj.weight": (p, n)}
        out |= {"b_proj.weight": (h, d), "A_log": (h,), "dt_bias": (p,), "o_norm.weight": (n,)}
        return out | {"o_proj.weight": (d, p)}
    h, q, r, nope, v = (c[x] for x in ("num_attention_heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim"))
    out = {"q_a_proj.weight": (q, d), "q_a_layernorm.weight": (q,), "q_b_proj.weight": (h * nope, q)}
    out |= {"kv_a_proj_with_mqa.weight": (r, d), "kv_a_layernorm.weight": (r,), "kv_b_proj.weight": (h * (nope + v), r)}
    heads, n, pool = c["index_n_heads"], c["index_head_dim"], c["index_kpool"]
    index = {"wq_b.weight": (heads * n, q), "wk.weight": (n, d), "k_norm.weight": (n,), "k_norm.bias": (n,)}
    index |= {"weights_proj.weight": (heads, d), "index_kpool_compress_ape": (pool, n), "index_kpool_compress_gate": (n, d)}
    return out | {"o_proj.weight": (d, h * v)} | {"indexer." + x: s for x, s in index.items()}


def feed_forward(c, dense):
    """Names and shapes of one layer's `mlp.`"""
    d, f, e = c["hidden_size"], c["moe_intermediate_size"], c["n_routed_experts"]
    gated = lambda at, width: {f"{at}{x}_proj.weight": (width, d) for x in ("gate", "up")} | {f"{at}down_proj.weight": (d, width)}
    if dense:
        return gated("", c["intermediate_size"])
    out = {"gate.weight": (e, d), "gate.e_score_correction_bias": (e,)} | gated("shared_experts.", f * c["n_shared_experts"])
    for i in range(e):
        out |= gated(f"experts.{i}.", f)
    return out


def tensors(c, head=False):
    """Names and shapes of the whole checkpoint."""
    d, v, n, s = c["hidden_size"], c["vocab_size"], c["num_hidden_layers"], c["hc_mult"]
    norm = lambda *names: {f"{x}.weight": (d,) for x in names}
    out = {"model.embed_tokens.weight": (v, d), "model.norm.weight": (d,), "lm_head.weight": (v, d)}
    for i in range(n + 1):
        kda = i < n and c["layer_types"][i] == "linear_attention"
        layer = {"self_attn." + x: z for x, z in mixer(c, kda).items()} | norm("input_layernorm", "post_attention_layernorm")
        layer |= {"mlp." + x: z for x, z in feed_forward(c, i < n and c["mlp_layer_types"][i] == "dense").items()}
        for x in ("attn", "ffn") if i < n else ():
            layer |= {f"hc_{x}_fn": ((2 + s) * s, s * d), f"hc_{x}_base": ((2 + s) * s,), f"hc_{x}_scale": (3,)}
        if i == n:
            layer |= norm("enorm", "hnorm", "shared_head.norm") | {"eh_proj.weight": (d, 2 * d)}
            layer |= {"shared_head.head.weight": (v, d), "embed_tokens.weight": (v, d)} if head else {}
        out |= {f"model.layers.{i}.{x}": z for x, z in layer.items()}
    return out


def spelt(config, weights, text=False, published=False, float32=False):
    """`text` names the text model alone; `published` is the multimodal form with `linear_attn_config`."""
    if text:
        config = config | {"model_type": "glm5_next_text"}
    if float32:
        weights = {n: x.float() if n.endswith(STRICT) else x for n, x in weights.items()}
    if published:
        gone = ("layer_types", "mlp_layer_types", "linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim", "linear_lower_bound")
        kinds = config["layer_types"]
        linear = {"num_heads": config["linear_num_heads"], "head_dim": config["linear_head_dim"], "short_conv_kernel_size": 4}
        linear |= {"gate_lower_bound": config["linear_lower_bound"], "safe_gate": True}
        linear["kda_layers"] = [i for i, x in enumerate(kinds) if x == "linear_attention"]
        linear["full_attn_layers"] = [i for i, x in enumerate(kinds) if x != "linear_attention"]
        inner = {k: v for k, v in config.items() if k not in (*gone, "architectures")}
        inner |= {"model_type": "glm5_next_text", "linear_attn_config": linear}
        config = {"architectures": ["Glm5NextForConditionalGeneration"], "model_type": "glm5_next", "text_config": inner}
        weights = {n.replace("model.", "model.language_model.", 1) if n.startswith("model.") else n: x for n, x in weights.items()}
    return config, weights


def make(folder, seed, layers, dsa, spell={}, draw={}, **changes):
    config = flat(layers, dsa, **changes)
    how = {k: v for k, v in spell.items() if k != "head"}
    generator = torch.Generator().manual_seed(seed)
    weights = checkpoint.drawn(tensors(config, spell.get("head", False)), generator, **draw)
    checkpoint.save(folder, *spelt(config, weights, **how))
    naming = "language_model" if spell.get("published") else "published"
    record.write(folder, SOURCE, naming, record.prompts(Judge(folder), generator))
