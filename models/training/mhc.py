"""Manifold-constrained hyper-connections: S residual streams, collapsed into a block's input and mixed by a doubly
stochastic matrix. Streams lie side by side in one array [B,T,S*D]."""

import jax
import jax.numpy as jnp

STREAMS, ITERATIONS, FLOOR = 4, 20, 1e-6


def draw(out, n, c):
    """Weights of one connection: near an ordinary residual, each stream with its own share in the input and the output."""
    s = STREAMS
    out.matrix(n + "fn", s * c.hidden, (2 + s) * s, fan=1, gain=0.01)
    out.matrix(n + "base", (2 + s) * s, 1, fan=1, gain=0.5)
    own = out.out[n + "base"][: 2 * s, 0]
    out.out[n + "base"] = jnp.concatenate([own, (3.0 * jnp.eye(s)).reshape(-1)])
    out.vector(n + "scale", 1.0, 3)


def doubly_stochastic(m):
    """Sinkhorn's iteration on positive m [S,S,M]; rows are the first axis, and the last step is over columns."""
    columns = lambda m: m / (m.sum(0, keepdims=True) + FLOOR)
    step = lambda m, _: (columns(m / (m.sum(1, keepdims=True) + FLOOR)), None)
    return jax.lax.scan(step, columns(m), None, length=ITERATIONS - 1)[0]


def collapse(w, n, x, eps):
    """(block input [B,T,D], what `expand` needs). x [B,T,S*D], n the connection's prefix."""
    s, shape = STREAMS, x.shape
    x = x.reshape(-1, shape[-1])
    m = ((x @ w[n + "fn"]) * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + eps)).T
    scale, base = w[n + "scale"], w[n + "base"][:, None]
    pre = jax.nn.sigmoid(m[:s] * scale[0] + base[:s]) + FLOOR
    post = 2 * jax.nn.sigmoid(m[s : 2 * s] * scale[1] + base[s : 2 * s])
    comb = jax.nn.softmax((m[2 * s :] * scale[2] + base[2 * s :]).reshape(s, s, -1), 1) + FLOOR
    streams = jnp.split(x, s, -1)
    y = sum(p[:, None] * stream for p, stream in zip(pre, streams))
    return y.reshape(*shape[:-1], -1), (streams, post, doubly_stochastic(comb))


def expand(y, kept):
    """The streams after a block with output y [B,T,D]."""
    streams, post, comb = kept
    flat = y.reshape(-1, y.shape[-1])
    out = [p[:, None] * flat + sum(comb[i, j][:, None] * x for i, x in enumerate(streams)) for j, p in enumerate(post)]
    return jnp.concatenate(out, -1).reshape(*y.shape[:-1], -1)
