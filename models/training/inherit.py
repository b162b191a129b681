"""Starts a model from a trained Kimi-Linear checkpoint of the same width and vocabulary, so that little time goes further.

What the shapes share is taken over, as near to the old function as the new form allows: plain residuals are what untrained
attention residuals and hyper-connections compute (the following norm removes their factor); a softplus decay is a scaled
sigmoid where it is small; a query projection is cut to its largest singular directions. The draft layer, the indexers, K3's
last layer and its routed experts start from random weights.
"""

import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file

import kda

OLD_ROPE, OLD_SCALE = 8, 2.446


class Source:
    """Tensors of one layer of the old checkpoint, as float32, matrices transposed to [in, out]."""

    def __init__(self, tensors, at):
        self.tensors, self.at = tensors, at

    def __call__(self, name):
        x = np.asarray(self.tensors[self.at + name]).astype(np.float32)
        return jnp.asarray(x.T if x.ndim == 2 else x)


def linear_attention(c, old, full_rank_gate):
    names = dict(q="q_proj", k="k_proj", v="v_proj", f_a="f_a_proj", f_b="f_b_proj", beta="b_proj", o="o_proj")
    out = {ours: old(f"self_attn.{theirs}.weight") for ours, theirs in names.items()}
    out |= {f"conv_{x}": old(f"self_attn.{x}_conv1d.weight")[:, 0].T for x in "qkv"}
    rate = old("self_attn.A_log").reshape(-1)
    out["dt_bias"] = old("self_attn.dt_bias") + jnp.repeat(rate, c.head) - jnp.log(-kda.LOWER_BOUND)
    out["A_log"], out["o_norm"] = jnp.zeros_like(rate), old("self_attn.o_norm.weight")
    low = old("self_attn.g_a_proj.weight"), old("self_attn.g_b_proj.weight")
    return out | (dict(g=low[0] @ low[1]) if full_rank_gate else dict(g_a=low[0], g_b=low[1]))


def latent_attention(c, old, norm, gated):
    q = old("self_attn.q_proj.weight").reshape(c.hidden, c.heads, c.head + OLD_ROPE)[..., : c.head + c.rope]
    q = q.reshape(c.hidden, -1) * ((c.head + c.rope) / (c.head + OLD_ROPE)) ** 0.5
    u, s, v = jnp.linalg.svd(norm[:, None] * q, full_matrices=False)
    r = c.query_latent
    out = {"q_a": u[:, :r] / norm[:, None], "q_b": s[:r, None] * v[:r], "q_norm": jnp.ones(r)}
    out["kv_a"] = old("self_attn.kv_a_proj_with_mqa.weight")[:, : c.latent + c.rope]
    out["kv_norm"], out["kv_b"] = old("self_attn.kv_a_layernorm.weight"), old("self_attn.kv_b_proj.weight")
    # An untrained output gate halves what it lets through.
    return out | {"o": old("self_attn.o_proj.weight") * (2.0 if gated else 1.0)}


def experts(c, old):
    """(gate, up, down) stacks of the routed experts, and the shared expert's."""
    at = "block_sparse_moe."
    routed = {ours: jnp.stack([old(f"{at}experts.{e}.{theirs}.weight") for e in range(c.experts)])
              for ours, theirs in dict(gate="w1", up="w3", down="w2").items()}  # fmt: skip
    return routed, {n: old(f"{at}shared_experts.{n}_proj.weight") for n in ("gate", "up", "down")}


def feed_forward(c, old, index, latent):
    if index == 0:
        return {n: old(f"mlp.{n}_proj.weight") for n in ("gate", "up", "down")}
    routed, shared = experts(c, old)
    if index < c.dense_layers:
        # The shared expert and as many routed ones as fit, at their mean weight.
        count = c.dense // c.expert - 1
        out = {n: jnp.concatenate([shared[n], *routed[n][:count]], 1) for n in ("gate", "up")}
        mean = OLD_SCALE / c.experts
        return out | {"down": jnp.concatenate([shared["down"], *(mean * routed["down"][:count])], 0)}
    out = {f"shared_{n}": x for n, x in shared.items()} | {"router": old("block_sparse_moe.gate.weight")}
    return out if latent else out | routed


def inherit(c, params, bias, folder):
    """Overwrites what it can of freshly drawn (params, bias) from the Hugging Face folder of the old checkpoint."""
    tensors = load_file(folder / "model.safetensors")
    top = Source(tensors, "")
    params |= {"embed": top("model.embed_tokens.weight").T, "norm": top("model.norm.weight"), "head": top("lm_head.weight")}
    for i in range(sum(n.endswith(".input_layernorm.weight") for n in tensors)):
        old, n = Source(tensors, f"model.layers.{i}."), f"{i}."
        norm = old("input_layernorm.weight")
        new = {"attn_norm": norm, "mlp_norm": old("post_attention_layernorm.weight")}
        if i in c.full:
            gated = n + "g" in params
            new |= latent_attention(c, old, norm, gated)
            if gated:
                params[n + "g"] *= 0.1
        else:
            new |= linear_attention(c, old, n + "g" in params)
        new |= feed_forward(c, old, i, n + "latent_down" in params)
        if i >= c.dense_layers:
            bias = bias.at[i - c.dense_layers].set(old("block_sparse_moe.gate.e_score_correction_bias"))
        for name, x in new.items():
            assert params[n + name].shape == x.shape, (n + name, params[n + name].shape, x.shape)
            params[n + name] = x
    return params, bias
