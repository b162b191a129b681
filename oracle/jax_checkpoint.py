"""A Hugging Face folder for the JAX programs: its configuration, and its tensors in float32 under their published names."""

import json
import pathlib

import jax.numpy as jnp
import numpy as np
from safetensors import safe_open


class Checkpoint:
    """`family` is the folder's model_type; `config` the text model's keys, wherever they are."""

    def __init__(self, folder):
        folder = pathlib.Path(folder)
        config = json.loads((folder / "config.json").read_text())
        self.family = config["model_type"].removesuffix("_text")
        self.config = config | config.get("text_config", {})
        self.file = safe_open(folder / "model.safetensors", "numpy")
        # Published multimodal files have one more level in every name, before or behind `model.`.
        self.names = {name.replace("language_model.", ""): name for name in self.file.keys()}

    def tensor(self, name):
        return np.asarray(self.file.get_tensor(self.names[name]), np.float32)

    def layer(self, index):
        return Layer(self, f"model.layers.{index}.")


class Layer:
    """The tensors of one layer, by the rest of their names."""

    def __init__(self, checkpoint, prefix):
        self.checkpoint, self.prefix = checkpoint, prefix

    def raw(self, name):
        return self.checkpoint.tensor(self.prefix + name)

    def vector(self, name):
        return jnp.asarray(self.raw(name))

    def linear(self, *names):
        """Several linear weights side by side, as [in, sum of outs]."""
        return jnp.asarray(np.concatenate([self.raw(name + ".weight").T for name in names], -1))
