"""Multi-head latent attention without rotation, dense or over the pools that an indexer selects.

Axes: B sequences, T tokens, H heads, K channels of a head's key, V of its value, P pools of 4 tokens.
"""

import jax
import jax.numpy as jnp

import indexer
from norm import rms

BLOCK = 128


def draw(out, n, c, gate, residual):
    """Weights of one layer under the prefix n; `gate`: whether the output is gated."""
    d, h, k = c.hidden, c.heads, c.head
    out.matrix(n + "q_a", d, c.query_latent)
    out.vector(n + "q_norm", 1.0, c.query_latent)
    out.matrix(n + "q_b", c.query_latent, h * (k + c.rope))
    out.matrix(n + "kv_a", d, c.latent + c.rope)
    out.vector(n + "kv_norm", 1.0, c.latent)
    out.matrix(n + "kv_b", c.latent, h * 2 * k)
    if gate:
        out.matrix(n + "g", d, h * k)
    out.matrix(n + "o", h * k, d, gain=residual)


def blocks(t):
    """(first, end) of the query blocks; a block sees the keys before its end."""
    return [(i, min(i + BLOCK, t)) for i in range(0, t, BLOCK)]


@jax.custom_vjp
def attention(q, k, v, penalty):
    """Causal softmax attention, q already scaled. q, k [B,H,T,K], v [B,H,T,V]; penalty: None, or [B,T,P] added to the scores
    of a pool's tokens. Returns (out [B,H,T,V], mass [B,T,P]: the heads' mean weight of each pool, a constant for gradients;
    None without a penalty)."""
    return attention_forward(q, k, v, penalty)[0]


def attention_forward(q, k, v, penalty):
    outs, weights, mass, t = [], [], [], q.shape[2]
    for first, end in blocks(t):
        scores = q[:, :, first:end] @ k[:, :, :end].mT
        if penalty is not None:
            own = jnp.repeat(penalty[:, first:end, : -(-end // indexer.POOL)], indexer.POOL, -1)[..., :end]
            scores = scores + own[:, None]
        scores = jnp.where(jnp.tril(jnp.ones((end - first, end), bool), first), scores, -1e30)
        weight = jnp.exp(scores - scores.max(-1, keepdims=True))
        weight = weight / weight.sum(-1, keepdims=True)
        weights.append(weight)
        outs.append(weight @ v[:, :, :end])
        if penalty is not None:
            pooled = weight.mean(1).reshape(*penalty.shape[:1], end - first, -1, indexer.POOL).sum(-1)
            mass.append(jnp.pad(pooled, ((0, 0), (0, 0), (0, (t - end) // indexer.POOL))))
    mass = jnp.concatenate(mass, 1) if mass else None
    return (jnp.concatenate(outs, 2), mass), (q, k, v, penalty, weights)


def attention_backward(saved, grads):
    q, k, v, penalty, weights = saved
    dq, dk, dv = [], jnp.zeros_like(k), jnp.zeros_like(v)
    for (first, end), weight in zip(blocks(q.shape[2]), weights):
        g = grads[0][:, :, first:end]
        slope = g @ v[:, :, :end].mT
        slope = weight * (slope - (weight * slope).sum(-1, keepdims=True))
        dq.append(slope @ k[:, :, :end])
        dk = dk.at[:, :, :end].add(slope.mT @ q[:, :, first:end])
        dv = dv.at[:, :, :end].add(weight.mT @ g)
    return jnp.concatenate(dq, 2), dk, dv, None if penalty is None else jnp.zeros_like(penalty)


attention.defvjp(attention_forward, attention_backward)


def projections(c, w, x):
    """(q [B,H,T,K+R], scaled, k [B,H,T,K+R], v [B,H,T,K], the query's latent [B,T,Q], the output gate's logits or None)."""
    b, t, _ = x.shape
    h, k, r = c.heads, c.head, c.rope
    widths = [w["q_a"].shape[1], w["q_a"].shape[1] + c.latent, w["q_a"].shape[1] + c.latent + r]
    mixed = x @ jnp.concatenate([w["q_a"], w["kv_a"]] + ([w["g"]] if "g" in w else []), -1)
    query, latent, shared, gate = jnp.split(mixed, widths, -1)
    query = rms(query, w["q_norm"], c.latent_eps)
    q = (query @ w["q_b"]).reshape(b, t, h, k + r).transpose(0, 2, 1, 3) * (k + r) ** -0.5
    kv = (rms(latent, w["kv_norm"], c.latent_eps) @ w["kv_b"]).reshape(b, t, h, 2 * k).transpose(0, 2, 1, 3)
    keys = jnp.concatenate([kv[..., :k], jnp.broadcast_to(shared[:, None], (b, h, t, r))], -1) if r else kv[..., :k]
    return q, keys, kv[..., k:], query, gate if "g" in w else None


def joined(c, w, out, gate):
    """Heads [B,H,T,K] to the layer's output [B,T,D]."""
    out = out.transpose(0, 2, 1, 3).reshape(*out.shape[:1], out.shape[2], -1)
    return (out if gate is None else out * jax.nn.sigmoid(gate)) @ w["o"]


def mla(c, w, x):
    q, k, v, _, gate = projections(c, w, x)
    return joined(c, w, attention(q, k, v, None)[0], gate)


def dsa(c, w, x, sparse):
    """Attention over the selected pools and the open tail where `sparse`, dense where not. Returns (output, the indexer's
    loss: how far its distribution over the pools is from the attention's)."""
    q, k, v, query, gate = projections(c, w, x)
    scores, selected = indexer.select(c, w, jax.lax.stop_gradient(x), jax.lax.stop_gradient(query), sparse)
    out, mass = attention(q, k, v, indexer.penalty(selected))
    return joined(c, w, out, gate), indexer.loss(scores, selected, jax.lax.stop_gradient(mass))
