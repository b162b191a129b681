"""The draft layer: from the target's hidden vector at a token and the token after it, the token after that.

A decoder layer (attention, experts, plain residual) after a projection of both normalised inputs. The families differ in
the hidden vector it is given and gives back: before the final norm in K3, after it in GLM.
"""

import jax.numpy as jnp

import feedforward
from norm import rms


def draw(out, n, c):
    out.vector(n + "enorm", 1.0, c.hidden)
    out.vector(n + "hnorm", 1.0, c.hidden)
    out.vector(n + "head_norm", 1.0, c.hidden)
    out.matrix(n + "eh", 2 * c.hidden, c.hidden)


def inputs(c, w, embedded, h):
    """[B,T,D]: row t of `embedded` is token t+1; h is the hidden vector at t."""
    return jnp.concatenate([rms(embedded, w["enorm"], c.eps), rms(h, w["hnorm"], c.eps)], -1) @ w["eh"]


def shifted(params, ids):
    """Embeddings of ids [B,T], which start at position 1; the first is left out, as the published implementations do."""
    return params["embed"][ids].at[:, 0].set(0.0)


def feed_forward(c, w, bias, x):
    """The rest of the layer after its attention: (sum before the head's norm, load)."""
    y, load = feedforward.moe(c, w, bias, rms(x, w["mlp_norm"], c.eps))
    return x + y, load
