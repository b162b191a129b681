"""Feed-forwards: dense, and experts chosen by a sigmoid router. Axes: M tokens, D hidden, E experts, F expert width.

Weights of a set of experts: `gate`, `up` [E+1,D',F] and `down` [E+1,F,D'], the last one shared and of the model's width,
hence apart as `shared_gate`, `shared_up`, `shared_down`.
"""

import jax
import jax.numpy as jnp

from norm import rms


def situ(gate, up):
    """SiTU-GLU with beta 4 and linear beta 25."""
    return 4.0 * jnp.tanh(gate / 4.0) * jax.nn.sigmoid(gate) * 25.0 * jnp.tanh(up / 25.0)


def clamped_swiglu(gate, up):
    """SwiGLU with its inputs limited to 10."""
    return jax.nn.silu(jnp.minimum(gate, 10.0)) * jnp.clip(up, -10.0, 10.0)


def draw_dense(out, n, c, residual):
    out.matrix(n + "gate", c.hidden, c.dense)
    out.matrix(n + "up", c.hidden, c.dense)
    out.matrix(n + "down", c.dense, c.hidden, gain=residual)


def draw(out, n, c, residual, latent=None):
    """Weights of one layer; `latent`: the routed experts' width of input and output where it is not the model's."""
    width = latent or c.hidden
    out.matrix(n + "router", c.hidden, c.experts)
    out.matrix(n + "gate", c.experts, width, c.expert)
    out.matrix(n + "up", c.experts, width, c.expert)
    out.matrix(n + "down", c.experts, c.expert, width, gain=1.0 if latent else residual)
    if latent:
        out.matrix(n + "latent_down", c.hidden, latent)
        out.vector(n + "latent_norm", 1.0, latent)
        out.matrix(n + "latent_up", latent, c.hidden, gain=residual)
    out.matrix(n + "shared_gate", c.hidden, c.expert)
    out.matrix(n + "shared_up", c.hidden, c.expert)
    out.matrix(n + "shared_down", c.expert, c.hidden, gain=residual)


def dense(c, w, x):
    both = x @ jnp.concatenate([w["gate"], w["up"]], -1)
    return c.activation(both[..., : c.dense], both[..., c.dense :]) @ w["down"]


def route(c, router, bias, x):
    """Weights [M,E], zero where an expert is not chosen, and the choice mask [M,E]. x [M,D]."""
    score = jax.nn.sigmoid(x @ router)
    ranked = jax.lax.stop_gradient(score + bias)
    cut = ranked
    for _ in range(c.chosen - 1):
        cut = jnp.where(cut == cut.max(-1, keepdims=True), -jnp.inf, cut)
    mask = ranked >= cut.max(-1, keepdims=True)
    weight = jnp.where(mask, score, 0.0)
    return c.scale * weight / (weight.sum(-1, keepdims=True) + 1e-20), mask


def routed(c, w, x, weight, mask):
    """Weighted sum of the chosen experts' outputs, x [M,D'] -> [M,D']. Tokens are gathered into a fixed number of rows per
    expert; what does not fit is left out (never with `capacity` = experts / chosen)."""
    e, f, (m, width) = c.experts, c.expert, x.shape
    rows = int(c.capacity * m * c.chosen / e)
    place = jnp.cumsum(mask, 0) - 1
    slot = jnp.where(mask & (place < rows), place + jnp.arange(e) * rows, e * rows)
    token = jnp.full(e * rows + 1, m).at[slot.reshape(-1)].set(jnp.repeat(jnp.arange(m), e))[:-1]
    gathered = jnp.pad(x, ((0, 1), (0, 0)))[token].reshape(e, rows, -1)
    weight = jnp.pad(weight, ((0, 1), (0, 0)))[token, jnp.arange(e * rows) // rows].reshape(e, rows, 1)
    both = gathered @ jnp.concatenate([w["gate"], w["up"]], -1)
    y = (c.activation(both[..., :f], both[..., f:]) * weight) @ w["down"]
    return jnp.zeros((m + 1, width)).at[token].add(y.reshape(e * rows, -1))[:m]


def moe(c, w, bias, x):
    """Routed experts, on a latent of the token where the weights have `latent_down`, plus the shared one. Returns
    (output, load [E]: the share of choices each expert got)."""
    shape, f = x.shape, c.expert
    x = x.reshape(-1, c.hidden)
    weight, mask = route(c, w["router"], bias, x)
    if "latent_down" in w:
        y = routed(c, w, x @ w["latent_down"], weight, mask)
        y = rms(y, w["latent_norm"], c.eps) @ w["latent_up"]
    else:
        y = routed(c, w, x, weight, mask)
    both = x @ jnp.concatenate([w["shared_gate"], w["shared_up"]], -1)
    shared = c.activation(both[..., :f], both[..., f:]) @ w["shared_down"]
    return (y + shared).reshape(shape), mask.mean(0) / c.chosen
