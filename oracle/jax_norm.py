"""Normalisations over the last axis, and what several layers do with it."""

import jax
import jax.numpy as jnp
import numpy as np


def rms(x, weight, eps):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def layer_norm(x, weight, bias, eps):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + eps) * weight + bias


def unit(x):
    return x * jax.lax.rsqrt((x * x).sum(-1, keepdims=True) + 1e-6)


def split(x, *widths):
    """x cut into parts of these widths."""
    return jnp.split(x, np.cumsum(widths)[:-1], -1)
