"""The lightning indexer of sparse attention: scores pools of 4 tokens and selects the best for each query.

It learns from the attention it serves (its inputs are constants for gradients): the softmax of its scores is drawn to the
attention's mass over the selectable pools. Axes: B sequences, T tokens (a multiple of 4), I indexer heads, P pools.
"""

import jax
import jax.numpy as jnp

from norm import layer_norm

POOL = 4


def draw(out, n, c):
    out.matrix(n + "index_q", c.query_latent, c.index_heads * c.index_head)
    out.matrix(n + "index_k", c.hidden, c.index_head)
    out.vector(n + "index_k_norm", 1.0, c.index_head)
    out.vector(n + "index_k_bias", 0.0, c.index_head)
    out.matrix(n + "index_weights", c.hidden, c.index_heads)
    out.matrix(n + "index_ape", POOL, c.index_head, fan=1, gain=0.02)
    out.matrix(n + "index_gate", c.hidden, c.index_head, gain=0.3)


def scored(c, w, x, query):
    """Scores [B,T,P] of every pool, visible or not. x [B,T,D] the layer's normalised input, query [B,T,Q] its query latent."""
    b, t, _ = x.shape
    q = (query @ w["index_q"]).reshape(b, t * c.index_heads, c.index_head)
    k = layer_norm(x @ w["index_k"], w["index_k_norm"], w["index_k_bias"], 1e-6)
    share = jax.nn.softmax((x @ w["index_gate"]).reshape(b, t // POOL, POOL, -1) + w["index_ape"], 2)
    pooled = (share * k.reshape(share.shape)).sum(2) * c.index_head**-0.5
    hits = jax.nn.relu(q @ pooled.mT).reshape(b, t, c.index_heads, -1)
    weights = (x @ w["index_weights"]) * c.index_heads**-0.5
    return (hits * weights[..., None]).sum(2)


def select(c, w, x, query, sparse):
    """(scores [B,T,P], selected [B,T,P]): the best pools among those that are complete for a query; all of them where not
    `sparse`."""
    scores = scored(c, w, x, query)
    t, p = scores.shape[1:]
    visible = jnp.arange(p) * POOL + POOL - 1 <= jnp.arange(t)[:, None]
    ranked = jnp.where(visible, jax.lax.stop_gradient(scores), -1e30)
    count = min(c.index_topk // POOL, p)
    cut = jax.lax.top_k(ranked, count)[0][..., -1:]
    return scores, visible & (ranked >= jnp.where(sparse, cut, -1e30))


def penalty(selected):
    """What to add to the attention scores of each pool's tokens: nothing for a selected pool and for the open tail."""
    t, p = selected.shape[1:]
    tail = jnp.arange(p) == (jnp.arange(t)[:, None] + 1) // POOL
    return jnp.where(selected | tail, 0.0, -1e30)


def loss(scores, selected, mass):
    """Cross entropy of the softmax of the scores to the attention's mass, over the selected pools; mean over the tokens."""
    target = jnp.where(selected, mass, 0.0)
    target = target / (target.sum(-1, keepdims=True) + 1e-9)
    log = jax.nn.log_softmax(jnp.where(selected, scores, -1e30), -1)
    return -jnp.where(selected, target * log, 0.0).sum(-1).mean()
