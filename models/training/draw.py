"""Random weights by name, `{name: array}`; a matrix is [in, out] and is applied from the right."""

import jax
import jax.numpy as jnp


class Draw:
    def __init__(self, seed):
        self.key, self.out = jax.random.PRNGKey(seed), {}

    def matrix(self, name, *shape, fan=None, gain=1.0):
        """Normal, of standard deviation gain / sqrt(fan); the fan is the number of inputs unless given."""
        self.key, sub = jax.random.split(self.key)
        self.out[name] = jax.random.normal(sub, shape) * gain * (fan or shape[-2]) ** -0.5

    def vector(self, name, value, size=None):
        self.out[name] = jnp.full(size, value, jnp.float32) if size else jnp.asarray(value, jnp.float32)


def of_layer(params, index):
    """The weights of one layer, by the names that the layer's code uses."""
    prefix = f"{index}."
    return {n.removeprefix(prefix): x for n, x in params.items() if n.startswith(prefix)}
