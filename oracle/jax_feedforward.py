"""Feed-forwards: dense, and experts chosen by a sigmoid router, in the model's space or in a latent one.

Axes: n rows, D hidden, E experts, F expert width, S width of the shared experts. Every expert runs on every row as two wide
products, weighed between them: at these sizes cheaper than gathering, and a decode step reads all of them anyway.
"""

import dataclasses
from typing import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jax_norm import rms, split


def silu(gate, up):
    return jax.nn.silu(gate) * up


def clamped_silu(limit):
    return lambda gate, up: jax.nn.silu(jnp.minimum(gate, limit)) * jnp.clip(up, -limit, limit)


def situ(beta, linear_beta):
    def activation(gate, up):
        capped = up if linear_beta is None else linear_beta * jnp.tanh(up / linear_beta)
        return beta * jnp.tanh(gate / beta) * jax.nn.sigmoid(gate) * capped

    return activation


@dataclasses.dataclass(frozen=True)
class Dense:
    activation: Callable

    def weights(self, layer):
        return {"gate_up": layer.linear("mlp.gate_proj", "mlp.up_proj"), "down": layer.linear("mlp.down_proj")}

    def __call__(self, w, x):
        return self.activation(*jnp.split(x @ w["gate_up"], 2, -1)) @ w["down"]


@dataclasses.dataclass(frozen=True)
class Moe:
    activation: Callable
    experts: int
    chosen: int
    width: int
    renormalise: bool
    scale: float
    eps: float
    latent: bool  # routed experts read and write a latent of the row
    latent_norm: bool
    at: str  # names of the layer's weights begin so
    names: tuple[str, str, str]  # of an expert's gate, up and down

    def weights(self, layer):
        at = self.at
        routed = lambda name: [layer.raw(f"{at}experts.{e}.{name}.weight").T for e in range(self.experts)]
        shared = lambda name: layer.raw(f"{at}shared_experts.{name}_proj.weight").T
        gate, up, down = map(routed, self.names)
        beside = lambda parts: jnp.asarray(np.concatenate(parts, -1))
        router = layer.raw(at + "gate.weight").T
        out = {"bias": layer.vector(at + "gate.e_score_correction_bias")}
        if not self.latent:
            out["in"] = beside([router, *gate, shared("gate"), *up, shared("up")])
            out["down"] = jnp.asarray(np.concatenate([*down, shared("down")]))
            return out
        enter = layer.raw(at + "routed_expert_down_proj.weight").T
        leave = layer.raw(at + "routed_expert_up_proj.weight").T
        out["in"] = beside([router, enter, shared("gate"), shared("up")])
        out["gate_up"], out["down"] = beside([*gate, *up]), jnp.asarray(np.concatenate(down))
        out["out"] = jnp.asarray(np.concatenate([leave, shared("down")]))
        if self.latent_norm:
            out["norm"] = layer.vector(at + "routed_expert_norm.weight")
        return out

    def route(self, logits, bias):
        """Weight of each expert for each row [n,E], 0 where it is not chosen."""
        score = jax.nn.sigmoid(logits)
        _, chosen = jax.lax.top_k(score + bias, self.chosen)
        weight = score * jax.nn.one_hot(chosen, self.experts).sum(-2)
        if self.renormalise:
            weight = weight / (weight.sum(-1, keepdims=True) + 1e-20)
        return weight * self.scale

    def __call__(self, w, x):
        routed = self.experts * self.width
        if not self.latent:
            logits, both = split(x @ w["in"], self.experts, w["in"].shape[1] - self.experts)
            h = self.activation(*jnp.split(both, 2, -1))
            weight = jnp.repeat(self.route(logits, w["bias"]), self.width, -1)
            return jnp.concatenate([h[:, :routed] * weight, h[:, routed:]], -1) @ w["down"]
        latent = w["gate_up"].shape[0]
        shared = w["out"].shape[0] - latent
        logits, inside, gate, up = split(x @ w["in"], self.experts, latent, shared, shared)
        h = self.activation(*jnp.split(inside @ w["gate_up"], 2, -1))
        y = (h * jnp.repeat(self.route(logits, w["bias"]), self.width, -1)) @ w["down"]
        y = rms(y, w["norm"], self.eps) if self.latent_norm else y
        return jnp.concatenate([y, self.activation(gate, up)], -1) @ w["out"]
