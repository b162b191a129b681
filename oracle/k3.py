"""Tiny random Kimi K3 checkpoints; `k3_judge.py` says what mlx-lm computes with them."""

import torch

import checkpoint
import record
from k3_judge import Judge

SOURCE = "mlx-lm 0.32.2, mlx 0.32.4, float32, CPU"
NINE = [4, 8, 9]
STRICT = ("A_log", "dt_bias", "e_score_correction_bias", "conv1d.weight", "o_norm.weight")

# Per fixture: layers and MLA numbers (from 1), changes to `published()`, and how weights are drawn and spelt.
FIXTURES = {
    "k3-1": dict(seed=31, layers=9, mla=NINE),
    "k3-2": dict(seed=32, layers=9, mla=[3, 4, 6, 7, 8, 9], kda=(2, 128), routed_scaling_factor=2.5, spell=dict(padded=128)),
    "k3-3": dict(seed=33, layers=13, mla=[4, 8, 12, 13], spell=dict(float32=True, residual=True)),
    "k3-4": dict(seed=34, layers=9, mla=NINE, attn_res_block_size=3, routed_scaling_factor=2.5, spell=dict(nested=True, padded=3), draw=dict(decay=(0.3, -7.0), common=2.0)),
    "k3-5": dict(seed=35, layers=10, mla=[4, 8, 9], eos_token_id=[2, 5], spell=dict(head=True), draw=dict(decay=(0.7, 4.0), mlp=3.0)),
}  # fmt: skip


def published(layers, mla, kda=(3, 16), **changes):
    """config.json as the published checkpoint spells it, flat."""
    return {
        "architectures": ["KimiK3ForCausalLM"],
        "model_type": "kimi_k3",
        "dtype": "bfloat16",
        "vocab_size": 96,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 1024,
        "linear_attn_config": {
            "num_heads": kda[0],
            "head_dim": kda[1],
            "short_conv_kernel_size": 4,
            "gate_lower_bound": -5.0,
            "use_full_rank_gate": True,
            "kda_layers": [i for i in range(1, layers + 1) if i not in mla],
            "full_attn_layers": mla,
        },
        "hidden_act": "situ",
        "activation_situ_beta": 4.0,
        "activation_situ_linear_beta": 25.0,
        "attn_res_block_size": 4,
        "q_lora_rank": 24,
        "kv_lora_rank": 24,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "mla_use_nope": True,
        "mla_use_output_gate": True,
        "num_experts": 6,
        "num_experts_per_token": 2,
        "num_shared_experts": 2,
        "moe_intermediate_size": 8,
        "moe_router_activation_func": "sigmoid",
        "moe_renormalize": True,
        "routed_scaling_factor": 1.0,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "use_grouped_topk": True,
        "num_expert_group": 1,
        "topk_group": 1,
        "routed_expert_hidden_size": 16,
        "latent_moe_use_norm": True,
        "num_nextn_predict_layers": 1,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    } | changes


def mixer(c, kda, padded):
    """Names and shapes of one layer's `self_attn.`"""
    d, k = c["hidden_size"], c["linear_attn_config"]
    if kda:
        h, n = k["num_heads"], k["head_dim"]
        p = h * n
        projections = {f"{x}_proj.weight": (p, d) for x in "qkvg"} | {f"{x}_conv1d.weight": (p, 1, 4) for x in "qkv"}
        gates = {"f_a_proj.weight": (n, d), "f_b_proj.weight": (p, n), "b_proj.weight": (h, d), "A_log": (padded,), "dt_bias": (p,)}
        return projections | gates | {"o_norm.weight": (n,), "o_proj.weight": (d, p)}
    h, q, r = c["num_attention_heads"], c["q_lora_rank"], c["kv_lora_rank"]
    nope, rope, v = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    query = {"q_a_proj.weight": (q, d), "q_a_layernorm.weight": (q,), "q_b_proj.weight": (h * (nope + rope), q)}
    latent = {"kv_a_proj_with_mqa.weight": (r + rope, d), "kv_a_layernorm.weight": (r,), "kv_b_proj.weight": (h * (nope + v), r)}
    return query | latent | {"g_proj.weight": (h * v, d), "o_proj.weight": (d, h * v)}


def feed_forward(c, dense):
    """Names and shapes of one layer's feed-forward, from the layer's prefix on."""
    d, f, low, e = c["hidden_size"], c["moe_intermediate_size"], c["routed_expert_hidden_size"], c["num_experts"]
    gated = lambda at, width: {f"{at}.{x}_proj.weight": (width, d) for x in ("gate", "up")} | {f"{at}.down_proj.weight": (d, width)}
    if dense:
        return gated("mlp", c["intermediate_size"])
    at = "block_sparse_moe."
    out = {at + "gate.weight": (e, d), at + "gate.e_score_correction_bias": (e,), at + "routed_expert_norm.weight": (low,)}
    out |= {at + "routed_expert_down_proj.weight": (low, d), at + "routed_expert_up_proj.weight": (d, low)}
    out |= gated(at + "shared_experts", f * c["num_shared_experts"])
    for i in range(e):
        out |= {f"{at}experts.{i}.w{j}.weight": (low, f) if j == 2 else (f, low) for j in (1, 2, 3)}
    return out


def tensors(c, padded=4, residual=False, head=False):
    """Names and shapes of the whole checkpoint."""
    d, v, n = c["hidden_size"], c["vocab_size"], c["num_hidden_layers"]
    norm = lambda *names: {f"{x}.weight": (d,) for x in names}
    mix = lambda *names: norm(*(x + "_norm" for x in names)) | {f"{x}_proj.weight": (1, d) for x in names}
    out = {"model.embed_tokens.weight": (v, d), "model.norm.weight": (d,), "lm_head.weight": (v, d)}
    out |= {"model." + x: s for x, s in mix("output_attn_res").items()}
    for i in range(n + 1):
        kda = i + 1 in c["linear_attn_config"]["kda_layers"]
        layer = {"self_attn." + x: s for x, s in mixer(c, kda, padded).items()}
        layer |= feed_forward(c, i < c["first_k_dense_replace"]) | norm("input_layernorm", "post_attention_layernorm")
        if i < n or residual:
            layer |= mix("self_attention_res", "mlp_res")
        if i == n:
            layer |= norm("enorm", "hnorm", "shared_head.norm") | {"eh_proj.weight": (d, 2 * d)}
            layer |= {"shared_head.head.weight": (v, d), "embed_tokens.weight": (v, d)} if head else {}
        out |= {f"model.layers.{i}.{x}": s for x, s in layer.items()}
    return out


def spelt(config, weights, nested=False, float32=False):
    """`nested` is the published multimodal form; `float32` stores what the published checkpoint keeps in float32 so."""
    if nested:
        inner = config | {"model_type": "kimi_linear"}
        config = {"architectures": ["KimiK3ForConditionalGeneration"], "model_type": "kimi_k3", "text_config": inner}
        weights = {"language_model." + n: x for n, x in weights.items()}
    if float32:
        weights = {n: x.float() if n.endswith(STRICT) else x for n, x in weights.items()}
    return config, weights


def make(folder, seed, layers, mla, spell={}, draw={}, **changes):
    config = published(layers, mla, **changes)
    shape = {k: v for k, v in spell.items() if k in ("padded", "residual", "head")}
    how = {k: v for k, v in spell.items() if k in ("nested", "float32")}
    generator = torch.Generator().manual_seed(seed)
    checkpoint.save(folder, *spelt(config, checkpoint.drawn(tensors(config, **shape), generator, **draw), **how))
    naming = "language_model" if spell.get("nested") else "published"
    record.write(folder, SOURCE, naming, record.prompts(Judge(folder), generator))
