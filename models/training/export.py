"""Writes a model's last snapshot as a Hugging Face folder: `config.json`, `generation_config.json`, `model.safetensors` beside
the tokenizer's files. Weights are rounded to bfloat16, with the tensor names and shapes of the published checkpoints.

    python export.py k3          # or glm; --seed 1: random weights instead of a snapshot, --folder: elsewhere
"""

import argparse
import importlib
import json
import pathlib

import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

import corpus
import snapshot
from draw import of_layer

CONTEXT = 4096


def shared_configuration(c):
    """What both families spell alike."""
    return {
        "bos_token_id": corpus.BOS,
        "dtype": "float32",
        "eos_token_id": corpus.EOS,
        "hidden_size": c.hidden,
        "initializer_range": 0.02,
        "intermediate_size": c.dense,
        "kv_lora_rank": c.latent,
        "moe_intermediate_size": c.expert,
        "num_attention_heads": c.heads,
        "num_hidden_layers": c.layers,
        "num_key_value_heads": c.heads,
        "num_nextn_predict_layers": 1,
        "pad_token_id": corpus.PAD,
        "q_lora_rank": c.query_latent,
        "qk_nope_head_dim": c.head,
        "qk_rope_head_dim": c.rope,
        "rms_norm_eps": c.eps,
        "routed_scaling_factor": c.scale,
        "tie_word_embeddings": False,
        "topk_group": 1,
        "use_cache": True,
        "v_head_dim": c.head,
        "vocab_size": c.vocab,
    }


def k3_configuration(c):
    full = [i + 1 for i in c.full]
    return shared_configuration(c) | {
        "architectures": ["KimiK3ForCausalLM"],
        "activation_situ_beta": 4.0,
        "activation_situ_linear_beta": 25.0,
        "attn_res_block_size": c.block,
        "first_k_dense_replace": c.dense_layers,
        "hidden_act": "situ",
        "latent_moe_use_norm": True,
        "linear_attn_config": {
            "full_attn_layers": full,
            "gate_lower_bound": -5.0,
            "head_dim": c.head,
            "kda_layers": [i + 1 for i in range(c.layers) if i + 1 not in full],
            "num_heads": c.heads,
            "short_conv_kernel_size": 4,
            "use_full_rank_gate": True,
        },
        "max_position_embeddings": CONTEXT,
        "mla_use_nope": True,
        "mla_use_output_gate": True,
        "model_type": "kimi_k3",
        "moe_layer_freq": 1,
        "moe_renormalize": True,
        "moe_router_activation_func": "sigmoid",
        "num_expert_group": 1,
        "num_experts": c.experts,
        "num_experts_per_token": c.chosen,
        "num_shared_experts": 1,
        "routed_expert_hidden_size": c.expert_latent,
        "use_grouped_topk": True,
    }


def glm_configuration(c):
    return shared_configuration(c) | {
        "architectures": ["Glm5NextForCausalLM"],
        "attention_bias": False,
        "hc_eps": 1e-6,
        "hc_mult": 4,
        "hc_sinkhorn_iters": 20,
        "hidden_act": "silu",
        "index_head_dim": c.index_head,
        "index_kpool": 4,
        "index_kpool_always_select_tail": True,
        "index_n_heads": c.index_heads,
        "index_share_for_mtp_iteration": True,
        "index_topk": c.index_topk,
        "indexer_types": ["full"] * c.layers,
        "layer_types": ["indexed_attention" if i in c.full else "linear_attention" for i in range(c.layers)],
        "linear_conv_kernel_dim": 4,
        "linear_head_dim": c.head,
        "linear_lower_bound": -5.0,
        "linear_num_heads": c.heads,
        "max_position_embeddings": CONTEXT,
        "mlp_layer_types": ["dense" if i < c.dense_layers else "sparse" for i in range(c.layers)],
        "model_type": "glm5_next",
        "n_group": 1,
        "n_routed_experts": c.experts,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_experts_per_tok": c.chosen,
        "swiglu_limit": 10.0,
    }


def kda(c, w, at, padded):
    """`padded`: A_log is stored with twice its length, zeros behind, as in the K3 files."""
    out = {at + "o_proj.weight": w["o"].T, at + "dt_bias": w["dt_bias"], at + "o_norm.weight": w["o_norm"]}
    out[at + "A_log"] = jnp.pad(w["A_log"], (0, c.heads)) if padded else w["A_log"]
    for x in "qkv":
        out[f"{at}{x}_proj.weight"] = w[x].T
        out[f"{at}{x}_conv1d.weight"] = w["conv_" + x].T[:, None, :]
    for ours, theirs in dict(f_a="f_a_proj", f_b="f_b_proj", g="g_proj", g_a="g_a_proj", g_b="g_b_proj", beta="b_proj").items():
        if ours in w:
            out[f"{at}{theirs}.weight"] = w[ours].T
    return out


def mla(w, at):
    names = dict(q_a="q_a_proj", q_b="q_b_proj", kv_a="kv_a_proj_with_mqa", kv_b="kv_b_proj", g="g_proj", o="o_proj")
    names |= dict(index_q="indexer.wq_b", index_k="indexer.wk", index_weights="indexer.weights_proj")
    out = {f"{at}{theirs}.weight": w[ours].T for ours, theirs in names.items() if ours in w}
    out |= {at + "q_a_layernorm.weight": w["q_norm"], at + "kv_a_layernorm.weight": w["kv_norm"]}
    if "index_q" in w:
        at += "indexer."
        out |= {
            at + "k_norm.weight": w["index_k_norm"],
            at + "k_norm.bias": w["index_k_bias"],
            at + "index_kpool_compress_ape": w["index_ape"],
            at + "index_kpool_compress_gate": w["index_gate"].T,
        }
    return out


def feed_forward(c, w, bias, at, k3):
    if "router" not in w:
        return {f"{at}mlp.{n}_proj.weight": w[n].T for n in ("gate", "up", "down")}
    at += "block_sparse_moe." if k3 else "mlp."
    own = dict(gate="w1", up="w3", down="w2") if k3 else dict(gate="gate_proj", up="up_proj", down="down_proj")
    out = {at + "gate.weight": w["router"].T, at + "gate.e_score_correction_bias": bias}
    for n, name in own.items():
        for e in range(c.experts):
            out[f"{at}experts.{e}.{name}.weight"] = w[n][e].T
        out[f"{at}shared_experts.{n}_proj.weight"] = w["shared_" + n].T
    if k3:
        out[at + "routed_expert_down_proj.weight"] = w["latent_down"].T
        out[at + "routed_expert_norm.weight"] = w["latent_norm"]
        out[at + "routed_expert_up_proj.weight"] = w["latent_up"].T
    return out


def residuals(w, at):
    """Attention residuals, hyper-connections and the draft layer's own tensors, where the layer has them."""
    out = {}
    for ours, theirs in dict(attn_res="self_attention_res", mlp_res="mlp_res").items():
        if ours + "_norm" in w:
            out |= {f"{at}{theirs}_norm.weight": w[ours + "_norm"], f"{at}{theirs}_proj.weight": w[ours + "_proj"][None]}
    for name in ("hc_attn", "hc_ffn"):
        if name + "_fn" in w:
            out |= {at + name + "_fn": w[name + "_fn"].T, at + name + "_base": w[name + "_base"]}
            out[at + name + "_scale"] = w[name + "_scale"]
    if "eh" in w:
        out |= {at + "enorm.weight": w["enorm"], at + "hnorm.weight": w["hnorm"], at + "eh_proj.weight": w["eh"].T}
        out[at + "shared_head.norm.weight"] = w["head_norm"]
    return out


def tensors(c, params, bias, k3):
    """`{published name: array}`. Linear weights are [out, in] in a checkpoint, the transpose of ours."""
    out = {
        "model.embed_tokens.weight": params["embed"],
        "model.norm.weight": params["norm"],
        "lm_head.weight": params["head"].T,
    }
    if k3:
        out["model.output_attn_res_norm.weight"] = params["out_res_norm"]
        out["model.output_attn_res_proj.weight"] = params["out_res_proj"][None]
    for i in range(c.layers + 1):
        w, at = of_layer(params, i), f"model.layers.{i}."
        out[at + "input_layernorm.weight"] = w["attn_norm"]
        out[at + "post_attention_layernorm.weight"] = w["mlp_norm"]
        out |= kda(c, w, at + "self_attn.", k3) if "A_log" in w else mla(w, at + "self_attn.")
        out |= feed_forward(c, w, bias[i - c.dense_layers], at, k3) | residuals(w, at)
    return out


def random_state(family, c, seed):
    """Weights that keep every mechanism alive, for comparisons with other implementations."""
    params = family.init(c, seed)
    rng = np.random.default_rng(seed)
    params = {n: x + 0.2 * rng.standard_normal(x.shape).astype(np.float32) * (x.ndim < 2) for n, x in params.items()}
    return params, jnp.asarray(0.1 * rng.standard_normal((c.routers(), c.experts)).astype(np.float32))


def write(folder, family, c, params, bias):
    """Returns the number of parameters written."""
    k3 = family.NAME == "k3"
    stored = {n: np.ascontiguousarray(np.asarray(x, jnp.bfloat16)) for n, x in tensors(c, params, bias, k3).items()}
    part = folder / "model.safetensors.part"
    save_file(stored, part, metadata={"format": "pt"})
    part.chmod(0o644)
    part.rename(folder / "model.safetensors")
    configuration = k3_configuration(c) if k3 else glm_configuration(c)
    (folder / "config.json").write_text(json.dumps(configuration, indent=2, sort_keys=True) + "\n")
    generation = {"bos_token_id": corpus.BOS, "eos_token_id": corpus.EOS, "pad_token_id": corpus.PAD}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    return sum(x.size for x in stored.values())


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("family", choices=("k3", "glm"))
    args.add_argument("--seed", type=int)
    args.add_argument("--folder", type=pathlib.Path)
    args = args.parse_args()
    family = importlib.import_module(args.family)
    c = family.Config()
    if args.seed is None:
        trees, meta = snapshot.load(family)
        params, bias = trees["params"], trees["bias"]["bias"]
    else:
        (params, bias), meta = random_state(family, c, args.seed), {"step": 0, "tokens": 0}
    count = write(args.folder or corpus.MODELS / f"{family.NAME}-demo", family, c, params, bias)
    print(f"{count} parameters after step {meta['step']}, {meta['tokens']} tokens seen")


if __name__ == "__main__":
    main()
