"""The GLM-5.3-Flash shape: KDA with a low-rank gate, sparse attention at layers 3 and 7 (from 0), hyper-connections."""

import dataclasses
from typing import Callable

import jax.numpy as jnp

import feedforward
import indexer
import kda
import mhc
import mla
import mtp
from draw import Draw, of_layer
from norm import rms
from shape import Shape

NAME = "glm"


@dataclasses.dataclass(frozen=True)
class Config(Shape):
    layers: int = 8
    full: tuple = (3, 7)
    rope: int = 0
    latent_eps: float = 1e-5
    index_heads: int = 16
    index_head: int = 32
    index_topk: int = 64
    dense_layers: int = 2
    scale: float = 2.5
    activation: Callable = feedforward.clamped_swiglu


def init(c, seed=0):
    out, residual = Draw(seed), (2 * c.layers) ** -0.5
    out.matrix("embed", c.vocab, c.hidden, fan=1, gain=0.05)
    out.matrix("head", c.hidden, c.vocab, gain=0.5)
    out.vector("norm", 1.0, c.hidden)
    for i in range(c.layers + 1):
        n, draft = f"{i}.", i == c.layers
        for name in ("attn_norm", "mlp_norm"):
            out.vector(n + name, 1.0, c.hidden)
        if draft:
            mtp.draw(out, n, c)
        else:
            mhc.draw(out, n + "hc_attn_", c)
            mhc.draw(out, n + "hc_ffn_", c)
        if draft or i in c.full:
            mla.draw(out, n, c, False, residual)
            indexer.draw(out, n, c)
        else:
            kda.draw(out, n, c, False, residual)
        if i < c.dense_layers:
            feedforward.draw_dense(out, n, c, residual)
        else:
            feedforward.draw(out, n, c, residual)
    return out.out


def trunk(c, params, bias, ids, sparse=True):
    """(hidden for the head [B,T,D], the same for the draft layer, loads [routers-1,E], the indexers' loss)."""
    x = jnp.tile(params["embed"][ids], mhc.STREAMS)
    loads, index_loss = [], 0.0
    for i in range(c.layers):
        w = of_layer(params, i)
        y, kept = mhc.collapse(w, "hc_attn_", x, c.eps)
        y = rms(y, w["attn_norm"], c.eps)
        if i in c.full:
            y, own = mla.dsa(c, w, y, sparse)
            index_loss = index_loss + own
        else:
            y = kda.kda(c, w, y)
        y, kept = mhc.collapse(w, "hc_ffn_", mhc.expand(y, kept), c.eps)
        y = rms(y, w["mlp_norm"], c.eps)
        if i < c.dense_layers:
            y = feedforward.dense(c, w, y)
        else:
            y, load = feedforward.moe(c, w, bias[i - c.dense_layers], y)
            loads = loads + [load]
        x = mhc.expand(y, kept)
    h = rms(sum(jnp.split(x, mhc.STREAMS, -1)) / mhc.STREAMS, params["norm"], c.eps)
    return h, h, jnp.stack(loads), index_loss


def draft(c, params, bias, ids, h, sparse=True):
    """(hidden for the head [B,T,D], the same to recycle, load [E], the indexer's loss). Row t of ids [B,T] is token t+1."""
    w = of_layer(params, c.layers)
    x = mtp.inputs(c, w, mtp.shifted(params, ids), h)
    y, index_loss = mla.dsa(c, w, rms(x, w["attn_norm"], c.eps), sparse)
    x, load = mtp.feed_forward(c, w, bias[-1], x + y)
    x = rms(x, w["head_norm"], c.eps)
    return x, x, load, index_loss
