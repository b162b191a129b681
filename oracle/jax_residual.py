"""How a layer's two halves (mixer, feed-forward) read and extend what runs through the model.

Every kind has `start` (of the embeddings), `enter` (what a half reads, and what `leave` needs), `leave` (after a half's
output y) and `end` (what the final norm reads). Halves are counted through the model. Axes: n rows, D hidden.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

HALVES = ("attn", "ffn")


class Sum:
    """x + y."""

    def weights(self, checkpoint, layers):
        return {}

    def start(self, x):
        return x

    def enter(self, w, x, half):
        return x, x

    def leave(self, w, x, y, half):
        return x + y

    def end(self, w, x):
        return x


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Block attention residuals: a half reads a softmax-weighted sum of the finished blocks' sums and the running one.

    One matrix `columns` [D, halves + 1] scores a finished block for all that read it, so that this is one product.
    """

    block: int
    eps: float

    def weights(self, checkpoint, layers):
        names = [f"model.layers.{i}.{half}_res" for i in range(layers) for half in ("self_attention", "mlp")]
        names.append("model.output_attn_res")
        column = lambda n: checkpoint.tensor(n + "_norm.weight") * checkpoint.tensor(n + "_proj.weight")[0]
        return {"columns": jnp.asarray(np.stack([column(name) for name in names], -1))}

    def start(self, x):
        return [], x

    def scores(self, x, columns):
        return (x @ columns) * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + self.eps)

    def mix(self, w, bank, partial, half):
        if not bank:
            return partial
        scores = [logits[:, half, None] for _, logits in bank]
        scores.append(self.scores(partial, w["columns"][:, half, None]))
        share = jax.nn.softmax(jnp.concatenate(scores, -1))
        return sum(share[:, i : i + 1] * row for i, row in enumerate([row for row, _ in bank] + [partial]))

    def enter(self, w, carry, half):
        return self.mix(w, *carry, half), carry

    def leave(self, w, carry, y, half):
        bank, partial = carry
        if half % (2 * self.block) == 0:
            return bank + [(partial, self.scores(partial, w["columns"]))], y
        return bank, partial + y

    def end(self, w, carry):
        return self.mix(w, *carry, -1)


@dataclasses.dataclass(frozen=True)
class Streams:
    """Hyper-connections: S streams [n,D], collapsed into what a half reads, and mixed by a doubly stochastic matrix."""

    count: int
    iterations: int
    floor: float
    eps: float

    def weights(self, checkpoint, layers):
        get = lambda i, half, name: jnp.asarray(checkpoint.tensor(f"model.layers.{i}.hc_{half}_{name}"))
        out = []
        for i in range(layers):
            for half in HALVES:
                out.append({name: get(i, half, name) for name in ("fn", "base", "scale")})
        return {"halves": out}

    def start(self, x):
        return [x] * self.count

    def enter(self, w, streams, half):
        w, s = w["halves"][half], self.count
        x = jnp.concatenate(streams, -1)
        # Rows last: everything after this product works on few values a row.
        m = (w["fn"] @ x.T) * jax.lax.rsqrt((x * x).mean(-1) + self.eps)
        parts = zip(jnp.split(m, [s, 2 * s]), jnp.split(w["base"], [s, 2 * s]), w["scale"])
        pre, post, comb = [part * scale + base[:, None] for part, base, scale in parts]
        pre, post = jax.nn.sigmoid(pre) + self.floor, 2 * jax.nn.sigmoid(post)
        comb = jax.nn.softmax(comb.reshape(s, s, -1), 1) + self.floor
        y = sum(share[:, None] * stream for share, stream in zip(pre, streams))
        return y, (streams, post, self.doubly_stochastic(comb))

    def doubly_stochastic(self, m):
        """Sinkhorn's iterations on m [from,to,n], ending on the columns."""
        columns = lambda m: m / (m.sum(0, keepdims=True) + self.floor)
        step = lambda _, m: columns(m / (m.sum(1, keepdims=True) + self.floor))
        return jax.lax.fori_loop(1, self.iterations, step, columns(m))

    def leave(self, w, kept, y, half):
        streams, post, comb = kept
        mixed = lambda j: sum(comb[i, j][:, None] * stream for i, stream in enumerate(streams))
        return [post[j][:, None] * y + mixed(j) for j in range(self.count)]

    def end(self, w, streams):
        return sum(streams) / self.count
