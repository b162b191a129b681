"""MLA over the pools of tokens that a lightning indexer chooses, and the open pool.

Axes as in `jax_mla`; I channels of an indexer head, S tokens of a pool, P = L / S pools of the cache, C pools chosen.
A sequence's cache is {latent [L,R], pools [P,I], open [S,2,I]}: pooled keys of the complete pools, and the raw keys and
pooling scores of the tokens of the open one.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jax_mla import Mla, put_rows
from jax_norm import layer_norm, split


@dataclasses.dataclass(frozen=True)
class Dsa(Mla):
    index_heads: int
    index_channels: int
    pool: int
    chosen: int

    def weights(self, layer):
        at = "self_attn.indexer."
        gate = layer.raw(at + "index_kpool_compress_gate")
        project = [layer.raw(at + "wk.weight"), gate, layer.raw(at + "weights_proj.weight")]
        return super().weights(layer) | {
            "index_query": layer.linear(at + "wq_b"),
            "index_in": jnp.asarray(np.concatenate(project).T),
            "index_norm": layer.vector(at + "k_norm.weight"),
            "index_bias": layer.vector(at + "k_norm.bias"),
            "places": layer.vector(at + "index_kpool_compress_ape"),
        }

    def empty(self, length):
        index = {
            "pools": jnp.zeros((length // self.pool, self.index_channels)),
            "open": jnp.zeros((self.pool, 2, self.index_channels)),
        }
        return super().empty(length) | index

    def index(self, w, x, query):
        """Rows [n,D], the query's latent [n,Q] -> (indexer queries [n,J,I], head weights [n,J], own key and score [n,2,I])."""
        heads, channels = self.index_heads, self.index_channels
        key, score, weight = split(x @ w["index_in"], channels, channels, heads)
        key = layer_norm(key, w["index_norm"], w["index_bias"], 1e-6)
        q = (query @ w["index_query"]).reshape(-1, heads, channels)
        return q, weight * (heads * channels) ** -0.5, jnp.stack([key, score], 1)

    def pooled(self, w, raw):
        """Raw keys and scores [...,S,2,I] -> pooled keys [...,I]."""
        share = jax.nn.softmax(raw[..., 1, :] + w["places"], -2)
        return (share * raw[..., 0, :]).sum(-2)

    def choose(self, hits, weight, seen):
        """Products [n,J,P] of queries and pooled keys, tokens seen [n] -> pools to read [n,C+1], the open one last, and
        which of their tokens count [n,C+1,S]."""
        scores = (jax.nn.relu(hits) * weight[..., None]).sum(1)
        scores = jnp.where(scores == 0, 0.0, scores)  # top_k would put 0 before -0
        complete = seen[:, None] // self.pool
        scores = jnp.where(jnp.arange(scores.shape[1]) < complete, scores, -jnp.inf)
        best, chosen = jax.lax.top_k(scores, min(self.chosen, scores.shape[1]))
        counts = jnp.broadcast_to((best > -jnp.inf)[..., None], (*best.shape, self.pool))
        open_pool = jnp.arange(self.pool) < (seen % self.pool)[:, None]
        return jnp.concatenate([chosen, complete], 1), jnp.concatenate([counts, open_pool[:, None]], 1)

    def attend(self, q, lines, counts):
        """q [n,H,R] over each row's own lines [n,C+1,S,R] where they count -> [n,H,R]."""
        n, rank = lines.shape[0], lines.shape[-1]
        lines, counts = lines.reshape(n, -1, rank), counts.reshape(n, 1, -1)
        scores = jnp.where(counts, jnp.einsum("nhr,nlr->nhl", q, lines), -jnp.inf)
        return jnp.einsum("nhl,nlr->nhr", jax.nn.softmax(scores), lines)

    def step(self, w, cache, x, position):
        q, line, query, gate = self.project(w, x)
        index_q, weight, own = self.index(w, x, query)
        latent = put_rows(cache["latent"], line, position)
        open_pool = put_rows(cache["open"], own, position % self.pool)
        # A pool that is not complete is written too, but nobody sees it before its last token writes it again.
        pools = put_rows(cache["pools"], self.pooled(w, open_pool), position // self.pool)
        hits = jnp.einsum("nji,npi->njp", index_q, pools)
        chosen, counts = self.choose(hits, weight, position + 1)
        lines = latent.reshape(latent.shape[0], -1, self.pool, latent.shape[-1])
        lines = jnp.take_along_axis(lines, chosen[..., None, None], 1, mode="clip")
        read = self.attend(q, lines, counts)
        return self.finish(w, read, gate), {"latent": latent, "pools": pools, "open": open_pool}

    def chunk(self, w, cache, x, position):
        """T is a multiple of the pool, so that no pool is open between chunks."""
        t = x.shape[0]
        q, line, query, gate = self.project(w, x)
        index_q, weight, own = self.index(w, x, query)
        latent = jax.lax.dynamic_update_slice(cache["latent"], line, (position, 0))
        closed = self.pooled(w, own.reshape(t // self.pool, self.pool, 2, -1))
        pools = jax.lax.dynamic_update_slice(cache["pools"], closed, (position // self.pool, 0))
        hits = (index_q.reshape(t * self.index_heads, -1) @ pools.T).reshape(t, self.index_heads, -1)
        chosen, counts = self.choose(hits, weight, position + 1 + jnp.arange(t))
        lines = latent.reshape(-1, self.pool, latent.shape[-1]).at[chosen].get(mode="clip")
        read = self.attend(q, lines, counts)
        return self.finish(w, read, gate), cache | {"latent": latent, "pools": pools}
