"""The three families as arrangements of layers, read from a folder, and their two programs: `prefill` and `decode`.

What Tandem's programs compute without drafts: float32, greedy choice inside the program, every row of a chunk through every
layer. Caches are one dictionary per layer, of one sequence in prefill and of B sequences, stacked, in decode.
"""

import jax
import jax.numpy as jnp

from jax_checkpoint import Checkpoint
from jax_dsa import Dsa
from jax_feedforward import Dense, Moe, clamped_silu, silu, situ
from jax_kda import Kda
from jax_mla import Mla
from jax_norm import rms
from jax_residual import Blocks, Streams, Sum


def kimi(c, k3):
    """(layers as (mixer, feed-forward), residual) of Kimi-Linear, or of Kimi K3."""
    eps, linear = c["rms_norm_eps"], c["linear_attn_config"]
    kda = Kda(linear["num_heads"], linear["head_dim"], eps, linear["gate_lower_bound"] if k3 else None, k3)
    mla = Mla(**mla_sizes(c), latent_eps=1e-6, gated=k3)
    activation = situ(c.get("activation_situ_beta", 1.0), c.get("activation_situ_linear_beta")) if k3 else silu
    moe = Moe(
        activation,
        experts=c["num_experts"],
        chosen=c["num_experts_per_token"],
        width=c["moe_intermediate_size"],
        renormalise=c["moe_renormalize"],
        scale=c["routed_scaling_factor"],
        eps=eps,
        latent=k3,
        latent_norm=k3 and c["latent_moe_use_norm"],
        at="block_sparse_moe.",
        names=("w1", "w3", "w2"),
    )
    dense, full = c["first_k_dense_replace"], {i - 1 for i in linear["full_attn_layers"]}
    kinds = lambda i: (mla if i in full else kda, Dense(activation) if i < dense else moe)
    return [kinds(i) for i in range(c["num_hidden_layers"])], Blocks(c["attn_res_block_size"], eps) if k3 else Sum()


def glm(c):
    eps = c["rms_norm_eps"]
    kda = Kda(c["linear_num_heads"], c["linear_head_dim"], eps, c["linear_lower_bound"], full_rank_gate=False)
    dsa = Dsa(
        **mla_sizes(c),
        latent_eps=eps,
        gated=False,
        index_heads=c["index_n_heads"],
        index_channels=c["index_head_dim"],
        pool=c["index_kpool"],
        chosen=c["index_topk"] // c["index_kpool"],
    )
    activation = clamped_silu(c["swiglu_limit"])
    moe = Moe(
        activation,
        experts=c["n_routed_experts"],
        chosen=c["num_experts_per_tok"],
        width=c["moe_intermediate_size"],
        renormalise=c["norm_topk_prob"],
        scale=c["routed_scaling_factor"],
        eps=eps,
        latent=False,
        latent_norm=False,
        at="mlp.",
        names=("gate_proj", "up_proj", "down_proj"),
    )
    mixers = [kda if kind == "linear_attention" else dsa for kind in c["layer_types"]]
    feed_forwards = [Dense(activation) if kind == "dense" else moe for kind in c["mlp_layer_types"]]
    return list(zip(mixers, feed_forwards)), Streams(c["hc_mult"], c["hc_sinkhorn_iters"], c["hc_eps"], eps)


def mla_sizes(c):
    return {
        "heads": c["num_attention_heads"],
        "nope": c["qk_nope_head_dim"],
        "rope": c["qk_rope_head_dim"],
        "value": c["v_head_dim"],
        "latent": c["kv_lora_rank"],
        "query_latent": c["q_lora_rank"],
    }


FAMILIES = {"kimi_linear": lambda c: kimi(c, False), "kimi_k3": lambda c: kimi(c, True), "glm5_next": glm}


class Model:
    """A folder's weights in the layout the programs want, and the programs, to be called under `jit`."""

    def __init__(self, folder):
        checkpoint = Checkpoint(folder)
        self.config = checkpoint.config
        self.eps, self.vocabulary = self.config["rms_norm_eps"], self.config["vocab_size"]
        self.layers, self.residual = FAMILIES[checkpoint.family](self.config)
        self.weights = {
            "embed": jnp.asarray(checkpoint.tensor("model.embed_tokens.weight")),
            "norm": jnp.asarray(checkpoint.tensor("model.norm.weight")),
            "head": jnp.asarray(checkpoint.tensor("lm_head.weight").T),
            "residual": self.residual.weights(checkpoint, len(self.layers)),
            "layers": [self.layer_weights(checkpoint.layer(i), *kinds) for i, kinds in enumerate(self.layers)],
        }

    @staticmethod
    def layer_weights(layer, mixer, feed_forward):
        return {
            "norm1": layer.vector("input_layernorm.weight"),
            "mixer": mixer.weights(layer),
            "norm2": layer.vector("post_attention_layernorm.weight"),
            "feed_forward": feed_forward.weights(layer),
        }

    def empty(self, length):
        """Caches of one sequence with room for `length` tokens."""
        return [mixer.empty(length) for mixer, _ in self.layers]

    def run(self, weights, caches, tokens, program, position):
        """Rows of tokens [n] through all layers, with each mixer's `program`: ("step" or "chunk")."""
        residual, w = self.residual, weights["residual"]
        carry, after = residual.start(weights["embed"][tokens]), []
        for i, (mixer, feed_forward) in enumerate(self.layers):
            own = weights["layers"][i]
            x, kept = residual.enter(w, carry, 2 * i)
            y, cache = getattr(mixer, program)(own["mixer"], caches[i], rms(x, own["norm1"], self.eps), position)
            after.append(cache)
            x, kept = residual.enter(w, residual.leave(w, kept, y, 2 * i), 2 * i + 1)
            y = feed_forward(own["feed_forward"], rms(x, own["norm2"], self.eps))
            carry = residual.leave(w, kept, y, 2 * i + 1)
        return residual.end(w, carry), after

    def greedy(self, weights, x):
        return jnp.argmax(rms(x, weights["norm"], self.eps) @ weights["head"], -1).astype(jnp.int32)

    def decode(self, weights, caches, tokens, position):
        """tokens, position [B] -> (caches, next tokens [B]); position is the number of tokens already cached."""
        x, caches = self.run(weights, caches, tokens, "step", position)
        return caches, self.greedy(weights, x)

    def prefill(self, weights, caches, ids, position):
        """A chunk ids [T] behind `position` cached tokens, a multiple of T -> (caches, next token)."""
        x, caches = self.run(weights, caches, ids, "chunk", position)
        return caches, self.greedy(weights, x[-1:])[0]
