"""The Kimi K3 shape: KDA with a full-rank gate, gated MLA at layers 4, 8 and 9 (from 1), latent experts, attention residuals."""

import dataclasses
from typing import Callable

import jax.numpy as jnp

import attnres
import feedforward
import kda
import mla
import mtp
from draw import Draw, of_layer
from norm import rms
from shape import Shape

NAME = "k3"


@dataclasses.dataclass(frozen=True)
class Config(Shape):
    layers: int = 9
    full: tuple = (3, 7, 8)
    block: int = 4
    rope: int = 8
    latent_eps: float = 1e-6
    dense_layers: int = 1
    expert_latent: int = 64
    scale: float = 1.0
    activation: Callable = feedforward.situ


def init(c, seed=0):
    out, residual = Draw(seed), (2 * c.layers) ** -0.5
    out.matrix("embed", c.vocab, c.hidden, fan=1, gain=0.05)
    out.matrix("head", c.hidden, c.vocab, gain=0.5)
    out.vector("norm", 1.0, c.hidden)
    out.vector("out_res_norm", 1.0, c.hidden)
    out.vector("out_res_proj", 0.0, c.hidden)
    for i in range(c.layers + 1):
        n, draft = f"{i}.", i == c.layers
        for name in ("attn_norm", "mlp_norm"):
            out.vector(n + name, 1.0, c.hidden)
        if draft:
            mtp.draw(out, n, c)
        else:
            for name in ("attn_res", "mlp_res"):
                out.vector(n + name + "_norm", 1.0, c.hidden)
                out.vector(n + name + "_proj", 0.0, c.hidden)
        if draft or i in c.full:
            mla.draw(out, n, c, True, residual)
        else:
            kda.draw(out, n, c, True, residual)
        if i < c.dense_layers:
            feedforward.draw_dense(out, n, c, residual)
        else:
            feedforward.draw(out, n, c, residual, c.expert_latent)
    return out.out


def effective(c, params):
    """[D, 2*layers+1]: the columns of all mixes, two per layer and the output's."""
    names = [f"{i}.{kind}_res" for i in range(c.layers) for kind in ("attn", "mlp")] + ["out_res"]
    return jnp.stack([params[n + "_norm"] * params[n + "_proj"] for n in names], -1)


def trunk(c, params, bias, ids, sparse=True):
    """(hidden for the head [B,T,D], hidden for the draft layer [B,T,D], loads [routers-1,E], 0)."""
    p, bank, loads, columns = params["embed"][ids], [], [], effective(c, params)
    for i in range(c.layers):
        w = of_layer(params, i)
        h = attnres.mix(bank, p, columns, 2 * i, c.eps)
        y = (mla.mla if i in c.full else kda.kda)(c, w, rms(h, w["attn_norm"], c.eps))
        if i % c.block == 0:
            bank = bank + [attnres.row(p, columns, c.eps)]
            p = y
        else:
            p = p + y
        x = rms(attnres.mix(bank, p, columns, 2 * i + 1, c.eps), w["mlp_norm"], c.eps)
        if i < c.dense_layers:
            p = p + feedforward.dense(c, w, x)
        else:
            y, load = feedforward.moe(c, w, bias[i - c.dense_layers], x)
            p, loads = p + y, loads + [load]
    h = attnres.mix(bank, p, columns, 2 * c.layers, c.eps)
    return rms(h, params["norm"], c.eps), h, jnp.stack(loads), 0.0


def draft(c, params, bias, ids, h, sparse=True):
    """(hidden for the head [B,T,D], hidden to recycle [B,T,D], load [E], 0). Row t of ids [B,T] is token t+1."""
    w = of_layer(params, c.layers)
    x = mtp.inputs(c, w, mtp.shifted(params, ids), h)
    x = x + mla.mla(c, w, rms(x, w["attn_norm"], c.eps))
    x, load = mtp.feed_forward(c, w, bias[-1], x)
    return rms(x, w["head_norm"], c.eps), x, load, 0.0
