"""The whole state of a training run in one file, so that it goes on where it was."""

import json

import jax.numpy as jnp
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

import corpus
import inherit
import optimiser


def path(family):
    return corpus.BUILD / f"{family.NAME}.safetensors"


def start(family, config, inherited=None):
    """A new run; `inherited`: the folder of a Kimi-Linear checkpoint to start from."""
    params, bias = family.init(config), jnp.zeros((config.routers(), config.experts))
    if inherited:
        params, bias = inherit.inherit(config, params, bias, inherited)
    first, second = optimiser.moments(params)
    meta = dict(step=0, seconds=0.0, tokens=0, epoch=0, window=0)
    return {"params": params, "first": first, "second": second, "bias": {"bias": bias}}, meta


def save(family, trees, meta):
    """Written by rename, so that a reader never sees half of it."""
    flat = {f"{kind}/{n}": np.asarray(x) for kind, tree in trees.items() for n, x in tree.items()}
    part = path(family).with_suffix(".part")
    save_file(flat, part, metadata={"meta": json.dumps(meta)})
    part.rename(path(family))


def load(family):
    """Returns ({kind: {name: array}}, meta) of the last snapshot."""
    trees = {}
    with safe_open(path(family), "numpy") as f:
        for key in f.keys():
            kind, name = key.split("/")
            trees.setdefault(kind, {})[name] = jnp.asarray(f.get_tensor(key))
        return trees, json.loads(f.metadata()["meta"])
