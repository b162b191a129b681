"""KDA: a recurrent state [K,K] per head, one token at a time or in tiles.

Axes: B sequences, T tokens of one sequence, H heads, K channels of a head, P = H * K, N tiles of C tokens.
A sequence's cache is {state [H,K,K], tail [3,3P]}, the tail being the last three inputs of the convolution.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jax_norm import rms, split, unit

TILE, BLOCK = 16, 4


@dataclasses.dataclass(frozen=True)
class Kda:
    heads: int
    channels: int
    eps: float
    bound: float | None  # of the log decay; None: unbounded
    full_rank_gate: bool

    def weights(self, layer):
        gate = "g_proj" if self.full_rank_gate else "g_a_proj"
        names = ["q_proj", "k_proj", "v_proj", "f_a_proj", gate, "b_proj"]
        conv = [layer.raw(f"self_attn.{x}_conv1d.weight")[:, 0].T for x in "qkv"]
        out = {
            "in": layer.linear(*["self_attn." + name for name in names]),
            "conv": jnp.asarray(np.concatenate(conv, -1)),
            "f_b": layer.linear("self_attn.f_b_proj"),
            "rate": jnp.exp(layer.vector("self_attn.A_log").reshape(-1)[: self.heads, None]),
            "dt_bias": layer.vector("self_attn.dt_bias"),
            "o_norm": layer.vector("self_attn.o_norm.weight"),
            "o": layer.linear("self_attn.o_proj"),
        }
        return out if self.full_rank_gate else out | {"g_b": layer.linear("self_attn.g_b_proj")}

    def empty(self, length):
        h, k = self.heads, self.channels
        return {"state": jnp.zeros((h, k, k)), "tail": jnp.zeros((3, 3 * h * k))}

    def project(self, w, x):
        """Rows [n,D] -> (inputs of the convolution [n,3P], log decay [n,H,K], output gate [n,H,K], beta [n,H])."""
        h, k = self.heads, self.channels
        gate_width = h * k if self.full_rank_gate else k
        qkv, f, gate, beta = split(x @ w["in"], 3 * h * k, k, gate_width, h)
        gate = gate if self.full_rank_gate else gate @ w["g_b"]
        z = (f @ w["f_b"] + w["dt_bias"]).reshape(-1, h, k)
        if self.bound is None:
            g = -w["rate"] * jax.nn.softplus(z)
        else:
            g = self.bound * jax.nn.sigmoid(w["rate"] * z)
        return qkv, g, jax.nn.sigmoid(gate).reshape(-1, h, k), jax.nn.sigmoid(beta)

    def head_inputs(self, qkv):
        """Convolved [n,3P] -> q, scaled, k, v [n,H,K]."""
        q, k, v = jnp.split(jax.nn.silu(qkv).reshape(-1, 3 * self.heads, self.channels), 3, 1)
        return unit(q) * self.channels**-0.5, unit(k), v

    def finish(self, w, o, gate):
        return (rms(o, w["o_norm"], self.eps) * gate).reshape(o.shape[0], -1) @ w["o"]

    def step(self, w, cache, x, position):
        """One token of each of B sequences: x [B,D]."""
        qkv, g, gate, beta = self.project(w, x)
        window = jnp.concatenate([cache["tail"], qkv[:, None]], 1)
        q, k, v = self.head_inputs((window * w["conv"]).sum(1))
        state = cache["state"] * jnp.exp(g)[..., None]
        delta = (v - jnp.einsum("bhk,bhkv->bhv", k, state)) * beta[..., None]
        state = state + k[..., None] * delta[..., None, :]
        o = jnp.einsum("bhk,bhkv->bhv", q, state)
        return self.finish(w, o, gate), {"state": state, "tail": window[:, 1:]}

    def chunk(self, w, cache, x, position):
        """T tokens of one sequence: x [T,D], T a multiple of TILE."""
        t = x.shape[0]
        qkv, g, gate, beta = self.project(w, x)
        window = jnp.concatenate([cache["tail"], qkv])
        q, k, v = self.head_inputs(sum(window[i : i + t] * w["conv"][i] for i in range(4)))
        o, state = self.chunked(q, k, v, g, beta, cache["state"])
        return self.finish(w, o, gate), {"state": state, "tail": window[-3:]}

    def chunked(self, q, k, v, g, beta, state):
        """q, k, v, g [T,H,K], beta [T,H], state [H,K,V] -> (o [T,H,V], state).

        A tile moves the state by S <- (diag(decay) - Kd^T W) S + Kd^T U and gives out (Q e^G - P W) S + P U; all of this
        but the product with S is done for every tile at once, so that one small product remains in the scan.
        """
        t, h, d = q.shape
        tiles = lambda x: x.reshape(t // TILE, TILE, h, -1).transpose(0, 2, 1, 3)
        q, k, v, g, beta = map(tiles, (q, k, v, g, beta[..., None]))
        total = jnp.tril(jnp.ones((TILE, TILE))) @ g
        last, entering = total[..., -1:, :], jnp.exp(total)
        both = (pairs if self.bound is None else bounded_pairs)(jnp.concatenate([k, q], -2), k, total)
        inverse = unit_lower_inverse(jnp.tril(both[..., :TILE, :], -1) * beta)
        scores = jnp.tril(both[..., TILE:, :])
        solved = inverse @ (beta * jnp.concatenate([k * entering, v], -1))
        both = jnp.concatenate([(k * jnp.exp(last - total)).mT, scores], -2) @ solved
        written, read = both[..., :d, :], both[..., d:, :]
        carry = jnp.eye(d) * jnp.exp(last) - written[..., :d]
        step = lambda s, x: (x[0] @ s + x[1], s)
        state, before = jax.lax.scan(step, state, (carry, written[..., d:]))
        o = (q * entering - read[..., :d]) @ before + read[..., d:]
        return o.transpose(0, 2, 1, 3).reshape(t, h, -1), state


def bounded_pairs(rows, k, total):
    """sum_c rows_ic k_jc exp(G_ic - G_jc) for j <= i, anything above. rows [...,2C,K]: two sets of C rows; k, G [...,C,K].

    Decays are taken relative to the tile's middle: half a tile of 16 decays by e^-40 at most, so that no factor overflows.
    """
    middle = total[..., TILE // 2 - 1 : TILE // 2, :]
    up = jnp.exp(total - middle)
    return (rows * jnp.concatenate([up, up], -2)) @ (k * jnp.exp(middle - total)).mT


def pairs(rows, k, total):
    """The same for any decay: in blocks of BLOCK rows, below the diagonal blocks the decay is split at the row before the
    block, where neither factor can exceed one; on them it is formed pair by pair."""
    out = []
    rows = rows.reshape(*rows.shape[:-2], 2, TILE, rows.shape[-1])
    lower = jnp.tril(jnp.ones((BLOCK, BLOCK), bool))[..., None]
    for s in range(0, TILE, BLOCK):
        at, g = slice(s, s + BLOCK), total[..., s : s + BLOCK, :]
        here = rows[..., at, :]
        pair = jnp.exp(jnp.where(lower, g[..., :, None, :] - g[..., None, :, :], -jnp.inf)) * k[..., None, at, :]
        parts = [(here[..., :, None, :] * pair[..., None, :, :, :]).sum(-1)]
        if s:
            base = total[..., s - 1 : s, :]
            left, right = here * jnp.exp(g - base)[..., None, :, :], k[..., :s, :] * jnp.exp(base - total[..., :s, :])
            parts.insert(0, (left.reshape(*left.shape[:-3], 2 * BLOCK, -1) @ right.mT).reshape(*here.shape[:-1], s))
        out.append(jnp.pad(jnp.concatenate(parts, -1), [(0, 0)] * (here.ndim - 1) + [(0, TILE - s - BLOCK)]))
    out = jnp.concatenate(out, -2)
    return out.reshape(*out.shape[:-3], 2 * TILE, TILE)


def unit_lower_inverse(n):
    """(I + n)^-1 for strictly lower n of size TILE, by doubling."""
    inverse, power, width = jnp.eye(TILE) - n, n @ n, 2
    while width < TILE:
        inverse = inverse + inverse @ power
        power, width = power @ power, 2 * width
    return inverse
