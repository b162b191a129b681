"""Block attention residuals: what a layer reads is a softmax-weighted sum of the finished blocks' sums and the running one.

All mixes of a model have one matrix `effective` [D, mixes], a column per mix (its norm times its projection), so that a
finished block's logits for every later mix are one product.
"""

import jax
import jax.numpy as jnp


def row(x, effective, eps):
    """A finished block for the bank: (its sum, its logits in every mix)."""
    return x, (x @ effective) * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + eps)


def mix(bank, partial, effective, column, eps):
    """Input of mix `column`: bank [(row [B,T,D], logits [B,T,mixes])], partial [B,T,D]."""
    if not bank:
        return partial
    own = (partial @ effective[:, column : column + 1]) * jax.lax.rsqrt((partial * partial).mean(-1, keepdims=True) + eps)
    share = jax.nn.softmax(jnp.concatenate([logits[..., column : column + 1] for _, logits in bank] + [own], -1), -1)
    return sum(share[..., i : i + 1] * x for i, x in enumerate([x for x, _ in bank] + [partial]))
