"""Trains the demo checkpoint on a CPU. Resumable: state lies in `../build/state.safetensors`, written every few minutes.

    python train.py --minutes 90

Muon on the matrices of the layers, Adam on the rest; the learning rate falls linearly over the second part of the time
given. The experts are balanced without a loss term: a bias per expert, which only steers the choice, follows the load.
"""

import argparse
import functools
import json
import time

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file
from tokenizers import Tokenizer

import corpus
import model

LENGTH = 512
MICRO_BATCHES = 4
MATRIX_RATE, ADAM_RATES, BIAS_RATE = 0.02, {"embed": 0.01, "head": 0.004}, 0.01
OTHER_RATE = 0.004
MOMENTUM, BETAS = 0.95, (0.9, 0.95)
STATE = corpus.BUILD / "state.safetensors"
SMALL = ("router", "beta", "conv_q", "conv_k", "conv_v")


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


@functools.partial(jax.jit, static_argnums=0, donate_argnums=(2,))
def accumulate(config, params, sums, bias, ids):
    """Adds one micro batch to (gradients, loss, loads)."""
    mean = lambda p: (lambda l, load: (l.mean(), load))(*model.losses(config, p, bias, ids))
    (loss, load), grads = jax.value_and_grad(mean, has_aux=True)(params)
    return jax.tree.map(jnp.add, sums, (grads, loss, load))


@functools.partial(jax.jit, donate_argnums=(0, 1, 2, 3))
def update(params, first, second, sums, bias, rate, step):
    """One optimiser step. first, second: moments (second is unused by matrices and is kept as a scalar there)."""
    grads = jax.tree.map(lambda g: g / MICRO_BATCHES, sums[0])
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
    load = sums[2] / MICRO_BATCHES
    bias = bias + rate * BIAS_RATE * jnp.sign(load.mean(-1, keepdims=True) - load)
    return params, first, second, bias, sums[1] / MICRO_BATCHES, norm, load.max()


def rate_at(progress):
    """Warm-up over 2 % of the time, level to 30 %, then linear to 2 %."""
    return min(1.0, progress / 0.02 + 0.02) * min(1.0, max(0.02, (1.0 - progress) / 0.7))


def windows(tokenizer, documents, epoch):
    ids = corpus.stream(tokenizer, documents, seed=epoch)
    start = np.random.default_rng(epoch).integers(LENGTH)
    count = (len(ids) - 1 - start) // LENGTH
    return [np.array(ids[start + i * LENGTH : start + (i + 1) * LENGTH + 1], np.int32)[None] for i in range(count)]


@functools.partial(jax.jit, static_argnums=0)
def score(config, params, bias, ids):
    return model.losses(config.exact(), params, bias, ids)[0].mean()


def held_out(config, params, bias, tokenizer, documents, limit=None):
    """Mean cross entropy in nats per token over the held-out chapters as plain text, windows of LENGTH tokens."""
    ids = corpus.stream(tokenizer, documents, seed=0, chat_share=0.0)
    starts = range(0, len(ids) - LENGTH - 1, LENGTH)[:limit]
    return float(np.mean([score(config, params, bias, np.array(ids[s : s + LENGTH + 1], np.int32)[None]) for s in starts]))


def save(trees, meta):
    """Writes the whole state at once, by rename, so that a reader never sees half of it."""
    flat = {f"{kind}/{n}": np.asarray(x) for kind, tree in trees.items() for n, x in tree.items()}
    part = STATE.with_suffix(".part")
    save_file(flat, part, metadata={"meta": json.dumps(meta)})
    part.rename(STATE)


def load():
    """Returns ({kind: {name: array}}, meta) of the last snapshot."""
    trees = {}
    with safe_open(STATE, "numpy") as f:
        for key in f.keys():
            kind, name = key.split("/")
            trees.setdefault(kind, {})[name] = f.get_tensor(key)
        return trees, json.loads(f.metadata()["meta"])


def start(config):
    params = model.init(config, jax.random.PRNGKey(0))
    zeros = lambda p: {n: jnp.zeros_like(x) for n, x in p.items()}
    second = {n: jnp.zeros(()) if is_matrix(n, x) else jnp.zeros_like(x) for n, x in params.items()}
    bias = jnp.zeros((config.layers - 1, config.experts))
    return {"params": params, "first": zeros(params), "second": second, "bias": {"bias": bias}}, dict(
        step=0, seconds=0.0, tokens=0, epoch=0, window=0
    )


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--minutes", type=float, required=True, help="training time, earlier runs of this state counted in")
    args.add_argument("--snapshot-minutes", type=float, default=5.0)
    args = args.parse_args()
    jax.config.update("jax_compilation_cache_dir", str(corpus.BUILD / "compiled"))
    config = model.Config()
    tokenizer = Tokenizer.from_file(str(corpus.FOLDER / "tokenizer.json"))
    training, kept_out = corpus.split()
    trees, meta = load() if STATE.exists() else start(config)
    params, first, second = ({n: jnp.asarray(x) for n, x in trees[k].items()} for k in ("params", "first", "second"))
    bias = jnp.asarray(trees["bias"]["bias"])
    queue = windows(tokenizer, training, meta["epoch"])
    began = last_save = last_log = time.monotonic()
    before = meta["seconds"]
    while (progress := meta["seconds"] / (60 * args.minutes)) < 1.0:
        sums = ({n: jnp.zeros_like(x) for n, x in params.items()}, jnp.zeros(()), jnp.zeros_like(bias))
        for _ in range(MICRO_BATCHES):
            if meta["window"] == len(queue):
                meta["epoch"], meta["window"] = meta["epoch"] + 1, 0
                queue = windows(tokenizer, training, meta["epoch"])
            sums = accumulate(config, params, sums, bias, queue[meta["window"]])
            meta["window"] += 1
        meta["step"] += 1
        params, first, second, bias, loss, norm, peak = update(
            params, first, second, sums, bias, rate_at(progress), float(meta["step"])
        )
        meta["tokens"] += MICRO_BATCHES * LENGTH
        loss = float(loss)
        now = time.monotonic()
        meta["seconds"] = before + now - began
        if now - last_log > 20:
            print(f"step {meta['step']} tokens {meta['tokens']} epoch {meta['epoch']} seconds {meta['seconds']:.0f} loss {loss:.3f} "
                  f"gradient {float(norm):.2f} busiest expert {float(peak):.2f} rate {rate_at(progress):.2f}", flush=True)
            last_log = now
        if now - last_save > 60 * args.snapshot_minutes or meta["seconds"] >= 60 * args.minutes:
            save({"params": params, "first": first, "second": second, "bias": {"bias": bias}}, meta)
            last_save = now
            print(f"snapshot; held-out {held_out(config, params, bias, tokenizer, kept_out, 8):.3f} on 8 windows", flush=True)
    print(f"held-out, all: {held_out(config, params, bias, tokenizer, kept_out):.4f} nats per token", flush=True)


if __name__ == "__main__":
    main()
