"""KDA with a lower-bounded decay, in the form that trains fast on a CPU.

Axes: B sequences, T tokens, D hidden, H heads, K channels of a head, P = H * K, N tiles of C tokens.
"""

import jax
import jax.numpy as jnp

from norm import rms

LOWER_BOUND = -5.0


def draw(out, n, c, full_rank_gate, residual):
    """Weights of one layer under the prefix n."""
    d, h, k = c.hidden, c.heads, c.head
    p = h * k
    for name in "qkv":
        out.matrix(n + name, d, p)
        out.matrix(n + "conv_" + name, 4, p, fan=1, gain=0.1)
        out.out[n + "conv_" + name] = out.out[n + "conv_" + name].at[3].add(1.0)
    out.matrix(n + "f_a", d, k)
    out.matrix(n + "f_b", k, p)
    if full_rank_gate:
        out.matrix(n + "g", d, p)
    else:
        out.matrix(n + "g_a", d, k)
        out.matrix(n + "g_b", k, p)
    out.matrix(n + "beta", d, h)
    # Time constants from a few tokens to a few hundred, spread over the channels of a head.
    rate = jnp.exp(jnp.linspace(jnp.log(0.003), jnp.log(0.3), k))
    out.vector(n + "dt_bias", jnp.tile(jnp.log(rate / (-LOWER_BOUND - rate)), h))
    out.vector(n + "A_log", 0.0, h)
    out.vector(n + "o_norm", 1.0, k)
    out.matrix(n + "o", p, d, gain=residual)


def short_conv(x, weight):
    """Causal depthwise convolution of width 4, then SiLU. x [B,T,P], weight [4,P], the last row for the current token."""
    t = x.shape[1]
    padded = jnp.pad(x, ((0, 0), (3, 0), (0, 0)))
    return jax.nn.silu(sum(padded[:, i : i + t] * weight[i] for i in range(4)))


@jax.custom_vjp
def states(a, b):
    """States before each tile of S[n+1] = a[n] S[n] + b[n], S[0] = 0. a [N,M,K,K], b [N,M,K,V] -> [N,M,K,V]."""
    step = lambda s, ab: (ab[0] @ s + ab[1], s)
    return jax.lax.scan(step, jnp.zeros_like(b[0]), (a, b))[1]


def states_forward(a, b):
    s = states(a, b)
    return s, (a, s)


def states_backward(saved, grad):
    """The adjoint runs the same recurrence backwards; everything else is batched over the tiles."""
    a, s = saved
    step = lambda adj, ag: (ag[0].mT @ adj + ag[1], adj)
    adjoint = jax.lax.scan(step, jnp.zeros_like(s[0]), (a, grad), reverse=True)[1]
    return adjoint @ s.mT, adjoint


states.defvjp(states_forward, states_backward)


def unit_lower_inverse(n):
    """(I + n)^-1 for strictly lower n [..., C, C], C a power of two, by doubling."""
    size = n.shape[-1]
    eye = jnp.eye(size, dtype=n.dtype)
    inverse, power, width = eye - n, n @ n, 2
    while width < size:
        inverse = inverse + inverse @ power
        width *= 2
        if width < size:
            power = power @ power
    return inverse


def delta_attention(q, k, v, g, beta, tile):
    """Chunked KDA from a zero state. q, k, v, g [B,T,H,K], beta [B,T,H], g the log decay; T a multiple of the tile.

    Inside a tile the decays are taken relative to its middle token: half a tile of 16 decays by e^-40 at most, so no factor
    overflows.
    """
    b, t, h, d = q.shape
    c, n = tile, t // tile
    tiles = lambda x: x.reshape(b, n, c, h, -1).transpose(1, 0, 3, 2, 4).reshape(n, b * h, c, -1)
    q, k, v, g, beta = map(tiles, (q, k, v, g, beta[..., None]))
    total = jnp.tril(jnp.ones((c, c), q.dtype)) @ g
    middle = total[..., c // 2 - 1 : c // 2, :]
    up, down = jnp.exp(total - middle), jnp.exp(middle - total)
    decay, last = jnp.exp(total), total[..., -1:, :]
    pairs = jnp.concatenate([k * up, q * up], -2) @ (k * down).mT
    strict = jnp.tril(jnp.ones((c, c), bool), -1)
    lower = jnp.tril(jnp.ones((c, c), bool))
    inverse = unit_lower_inverse(jnp.where(strict, pairs[..., :c, :], 0.0) * beta)
    scores = jnp.where(lower, pairs[..., c:, :], 0.0)
    wu = inverse @ (beta * jnp.concatenate([k * decay, v], -1))
    both = jnp.concatenate([(k * jnp.exp(last - total)).mT, scores], -2) @ wu
    moved, read = both[..., :d, :], both[..., d:, :]
    eye = jnp.eye(d, dtype=q.dtype)
    s = states(eye * jnp.exp(last) - moved[..., :d], moved[..., d:])
    out = (q * decay - read[..., :d]) @ s + read[..., d:]
    return out.reshape(n, b, h, c, -1).transpose(1, 0, 3, 2, 4).reshape(b, t, h, -1)


def kda(c, w, x):
    """One layer's mixer. The output gate is full-rank where the weights have `g`, low-rank where they have `g_a`, `g_b`."""
    b, t, _ = x.shape
    h, k = c.heads, c.head
    p = h * k
    gate_in = w["g"] if "g" in w else w["g_a"]
    mixed = x @ jnp.concatenate([w["q"], w["k"], w["v"], w["f_a"], gate_in, w["beta"]], -1)
    qkv = short_conv(mixed[..., : 3 * p], jnp.concatenate([w["conv_q"], w["conv_k"], w["conv_v"]], -1))
    q, key, v = jnp.split(qkv.reshape(b, t, 3 * h, k), 3, axis=2)
    unit = lambda y: y * jax.lax.rsqrt((y * y).sum(-1, keepdims=True) + 1e-6)
    f, gate, beta = jnp.split(mixed[..., 3 * p :], [k, k + gate_in.shape[1]], -1)
    gate = gate if "g" in w else gate @ w["g_b"]
    raw = (f @ w["f_b"] + w["dt_bias"]).reshape(b, t, h, k)
    g = LOWER_BOUND * jax.nn.sigmoid(jnp.exp(w["A_log"])[:, None] * raw)
    o = delta_attention(unit(q) * k**-0.5, unit(key), v, g, jax.nn.sigmoid(beta), c.tile)
    o = rms(o, w["o_norm"], c.eps) * jax.nn.sigmoid(gate).reshape(b, t, h, k)
    return o.reshape(b, t, p) @ w["o"]
