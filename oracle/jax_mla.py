"""Multi-head latent attention without rotation, in absorbed form: queries are taken into the space of the cached latents.

Axes: B sequences, T tokens of one sequence, H heads, R latent, W = R + rope width of a cached line, L lines of the cache.
A sequence's cache is {latent [L,W]}.
"""

import dataclasses

import jax
import jax.numpy as jnp

from jax_norm import rms, split


@dataclasses.dataclass(frozen=True)
class Mla:
    heads: int
    nope: int
    rope: int
    value: int
    latent: int
    query_latent: int | None
    latent_eps: float
    gated: bool

    def weights(self, layer):
        first = "q_a_proj" if self.query_latent else "q_proj"
        names = [first, "kv_a_proj_with_mqa"] + ["g_proj"] * self.gated
        kv_b = layer.raw("self_attn.kv_b_proj.weight").reshape(self.heads, self.nope + self.value, self.latent)
        out = {
            "in": layer.linear(*["self_attn." + name for name in names]),
            "latent_norm": layer.vector("self_attn.kv_a_layernorm.weight"),
            "key": jnp.asarray(kv_b[:, : self.nope]),
            "value": jnp.asarray(kv_b[:, self.nope :].transpose(0, 2, 1)),
            "o": layer.linear("self_attn.o_proj"),
        }
        if self.query_latent:
            out["query_norm"] = layer.vector("self_attn.q_a_layernorm.weight")
            out["query"] = layer.linear("self_attn.q_b_proj")
        return out

    def empty(self, length):
        return {"latent": jnp.zeros((length, self.latent + self.rope))}

    def project(self, w, x):
        """Rows [n,D] -> (queries in latent space, scaled [n,H,W], own lines [n,W], the query's latent, the gate's logits)."""
        width = self.nope + self.rope
        first = self.query_latent or self.heads * width
        gate = [self.heads * self.value] if self.gated else []
        query, latent, shared, *gate = split(x @ w["in"], first, self.latent, self.rope, *gate)
        if self.query_latent:
            query = rms(query, w["query_norm"], self.latent_eps)
        q = (query @ w["query"] if self.query_latent else query).reshape(-1, self.heads, width) * width**-0.5
        absorbed = jnp.einsum("nhk,hkr->nhr", q[..., : self.nope], w["key"])
        lines = jnp.concatenate([rms(latent, w["latent_norm"], self.latent_eps), shared], -1)
        return jnp.concatenate([absorbed, q[..., self.nope :]], -1), lines, query, gate

    def finish(self, w, read, gate):
        """Weighted sums of latents [n,H,R] to the layer's output [n,D]."""
        o = jnp.einsum("nhr,hrv->nhv", read, w["value"]).reshape(read.shape[0], -1)
        return (o * jax.nn.sigmoid(gate[0]) if gate else o) @ w["o"]

    def step(self, w, cache, x, position):
        """One token of each of B sequences: x [B,D], position [B]."""
        q, line, _, gate = self.project(w, x)
        lines = put_rows(cache["latent"], line, position)
        seen = jnp.arange(lines.shape[1]) <= position[:, None, None]
        scores = jnp.where(seen, jnp.einsum("bhw,blw->bhl", q, lines), -jnp.inf)
        read = jnp.einsum("bhl,blr->bhr", jax.nn.softmax(scores), lines[..., : self.latent])
        return self.finish(w, read, gate), {"latent": lines}

    def chunk(self, w, cache, x, position):
        """T tokens of one sequence: x [T,D]; position and the cache's length are multiples of T."""
        q, line, _, gate = self.project(w, x)
        lines = jax.lax.dynamic_update_slice(cache["latent"], line, (position, 0))
        return self.finish(w, causal(q, lines, position, self.latent), gate), {"latent": lines}


def put_rows(cache, rows, position):
    """cache [B,L,...] with each sequence's row of rows [B,...] at its own position [B]."""
    return cache.at[jnp.arange(rows.shape[0]), position].set(rows)


def causal(q, lines, position, rank):
    """q [T,H,W] from `position` on over lines [L,W] -> [T,H,rank], block by block of T lines, up to the queries' own: the
    cost follows the tokens that there are. All heads see the same lines, so that a block is two plain products."""
    t, h, width = q.shape
    q = q.reshape(t * h, width)
    row = jnp.arange(t * h)[:, None] // h

    def block(i, carry):
        peak, mass, read = carry
        here = jax.lax.dynamic_slice(lines, (i * t, 0), (t, width))
        scores = jnp.where(i * t + jnp.arange(t) <= position + row, q @ here.T, -jnp.inf)
        higher = jnp.maximum(peak, scores.max(-1, keepdims=True))
        weight, kept = jnp.exp(scores - higher), jnp.exp(peak - higher)
        return higher, mass * kept + weight.sum(-1, keepdims=True), read * kept + weight @ here[:, :rank]

    init = jnp.full((t * h, 1), -jnp.inf), jnp.zeros((t * h, 1)), jnp.zeros((t * h, rank))
    _, mass, read = jax.lax.fori_loop(0, position // t + 1, block, init)
    return (read / mass).reshape(t, h, rank)
