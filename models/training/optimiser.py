"""One optimiser step: Muon on the matrices of the layers, Adam on the rest, and the routers' biases by the load."""

import functools

import jax
import jax.numpy as jnp

MATRIX_RATE, OTHER_RATE, BIAS_RATE = 0.012, 0.0025, 0.01
ADAM_RATES = {"embed": 0.005}
MOMENTUM, BETAS = 0.95, (0.9, 0.95)
SMALL = ("router", "beta", "conv_q", "conv_k", "conv_v", "hc_attn_fn", "hc_ffn_fn", "index_weights", "index_ape")


def is_matrix(name, x):
    return "." in name and x.ndim >= 2 and name.split(".")[1] not in SMALL


def orthogonal(x):
    """Newton-Schulz iteration of Muon on a stack [S,m,n]: all singular values to about 1."""
    flip = x.shape[-2] > x.shape[-1]
    x = x.mT if flip else x
    x = x / (jnp.linalg.norm(x, axis=(-2, -1), keepdims=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.mT if flip else x


def muon(grads):
    """Update directions by name; matrices of one shape go through the iteration as one stack."""
    by_shape = {}
    for name, g in grads.items():
        by_shape.setdefault(g.shape[-2:], []).append(name)
    out = {}
    for shape, names in by_shape.items():
        stack = orthogonal(jnp.concatenate([grads[n].reshape(-1, *shape) for n in names]))
        at = 0
        for n in names:
            count = grads[n].size // (shape[0] * shape[1])
            out[n] = stack[at : at + count].reshape(grads[n].shape) * max(1.0, shape[1] / shape[0]) ** 0.5
            at += count
    return out


def moments(params):
    """(first, second), zero; the second is unused by matrices and is a scalar there."""
    second = {n: jnp.zeros(()) if is_matrix(n, x) else jnp.zeros_like(x) for n, x in params.items()}
    return {n: jnp.zeros_like(x) for n, x in params.items()}, second


@functools.partial(jax.jit, donate_argnums=(0, 1, 2, 3))
def update(params, first, second, grads, bias, load, rate, step):
    """grads: mean over the batch; load [routers,E]: the share of choices each expert got. Returns the new (params, first,
    second, bias, norm of the gradients)."""
    norm = jnp.sqrt(sum((g * g).sum() for g in grads.values()))
    grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / (norm + 1e-9)), grads)
    matrices = [n for n, p in params.items() if is_matrix(n, p)]
    for n in matrices:
        first[n] = MOMENTUM * first[n] + grads[n]
    directions = muon({n: grads[n] + MOMENTUM * first[n] for n in matrices})
    for n, p in params.items():
        if n in directions:
            params[n] = p * (1 - 0.1 * rate * MATRIX_RATE) - rate * MATRIX_RATE * directions[n]
            continue
        first[n] = BETAS[0] * first[n] + (1 - BETAS[0]) * grads[n]
        second[n] = BETAS[1] * second[n] + (1 - BETAS[1]) * grads[n] ** 2
        unbiased = first[n] / (1 - BETAS[0] ** step), second[n] / (1 - BETAS[1] ** step)
        params[n] = p - rate * ADAM_RATES.get(n, OTHER_RATE) * unbiased[0] / (jnp.sqrt(unbiased[1]) + 1e-8)
    bias = bias + rate * BIAS_RATE * jnp.sign(load.mean(-1, keepdims=True) - load)
    return params, first, second, bias, norm
