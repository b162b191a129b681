"""Trains a demo checkpoint on a CPU. Resumable: the state lies in `build/`, written every few minutes.

    python train.py k3 --minutes 85

The draft layer learns along with the whole model, its gradient reaching the target, and alone in the last part of the time.
In each part the learning rate falls linearly to nothing. The experts are balanced without a loss term: a bias per expert,
which only steers the choice, follows the load.
"""

import argparse
import functools
import importlib
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer

import corpus
import loss
import optimiser
import snapshot

LENGTH = 512
MICRO_BATCHES = 2
DRAFT_WEIGHT = 0.3
SPARSE_FROM = 0.25  # of the time; before that, attention with an indexer is dense while the indexer learns from it
DRAFT_FROM = 0.65  # of the time; from then on only the draft layer learns
SECOND_DRAFT_WEIGHT = 0.5


def losses(family, c, params, bias, ids, sparse):
    """(cross entropy of the next token [M], of the draft layer's [M], loads [routers,E], the indexers' loss).
    ids [B,T+2], T a multiple of the tile."""
    t = ids.shape[1] - 2
    x, h, load, index_loss = family.trunk(c, params, bias, ids[:, :t], sparse)
    y, _, own, draft_index = family.draft(c, params, bias, ids[:, 1 : t + 1], h, sparse)
    rows = jnp.concatenate([x, y]).reshape(-1, c.hidden)
    targets = jnp.concatenate([ids[:, 1 : t + 1], ids[:, 2:]]).reshape(-1)
    both = loss.cross_entropy(rows, params["head"], targets)
    return *jnp.split(both, 2), jnp.concatenate([load, own[None]]), index_loss + draft_index


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=(3,))
def accumulate(family, c, params, sums, bias, ids, sparse):
    """Adds one micro batch's mean to (gradients, losses [3], loads)."""

    def mean(p):
        target, draft, load, index_loss = losses(family, c, p, bias, ids, sparse)
        parts = jnp.stack([target.mean(), draft.mean(), jnp.asarray(index_loss)])
        return parts @ jnp.array([1.0, DRAFT_WEIGHT, 1.0]), (parts, load)

    (_, (parts, load)), grads = jax.value_and_grad(mean, has_aux=True)(params)
    return jax.tree.map(lambda a, b: a + b / MICRO_BATCHES, sums, (grads, parts, load))


def of_draft(c, params):
    return {n: x for n, x in params.items() if n.startswith(f"{c.layers}.")}


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=(4,))
def accumulate_draft(family, c, own, params, sums, bias, ids):
    """The same for the draft layer's weights `own` alone, over two drafts in a row: the second is fed the first's hidden
    vectors and the tokens of the text. ids [B,T+3]; the losses are (target's: 0, first, second draft's)."""
    t = ids.shape[1] - 3
    h = family.trunk(c, params, bias, ids[:, :t], True)[1]

    def mean(own):
        all_params = params | own
        first, recycled, load, index_loss = family.draft(c, all_params, bias, ids[:, 1 : t + 1], h, True)
        second, _, _, _ = family.draft(c, all_params, bias, ids[:, 2 : t + 2], recycled, True)
        rows = jnp.concatenate([first, second]).reshape(-1, c.hidden)
        targets = jnp.concatenate([ids[:, 2 : t + 2], ids[:, 3:]]).reshape(-1)
        parts = loss.cross_entropy(rows, params["head"], targets).reshape(2, -1).mean(-1)
        return parts @ jnp.array([1.0, SECOND_DRAFT_WEIGHT]) + index_loss, (jnp.pad(parts, (1, 0)), load[None])

    (_, (parts, load)), grads = jax.value_and_grad(mean, has_aux=True)(own)
    return jax.tree.map(lambda a, b: a + b / MICRO_BATCHES, sums, (grads, parts, load))


def rate_at(progress):
    """Warm-up over 2 % of the time, level to 35 %, then linear to 2 %; once for the whole, once for the draft layer alone."""
    alone = progress >= DRAFT_FROM
    progress = (progress - DRAFT_FROM) / (1 - DRAFT_FROM) if alone else progress / DRAFT_FROM
    return min(1.0, progress / 0.02 + 0.02) * min(1.0, max(0.02, (1.0 - progress) / 0.65))


def windows(tokenizer, documents, epoch):
    ids = corpus.stream(tokenizer, documents, seed=epoch)
    start = np.random.default_rng(epoch).integers(LENGTH)
    count = (len(ids) - 3 - start) // LENGTH
    return [np.array(ids[start + i * LENGTH : start + (i + 1) * LENGTH + 3], np.int32)[None] for i in range(count)]


@functools.partial(jax.jit, static_argnums=(0, 1))
def score(family, c, params, bias, ids):
    target, draft, _, _ = losses(family, c.exact(), params, bias, ids, True)
    return jnp.stack([target.mean(), draft.mean()])


def held_out(family, c, params, bias, tokenizer, documents, limit=None):
    """Mean cross entropies (target, draft) in nats per token over the held-out chapters as plain text, sparse attention."""
    ids = corpus.stream(tokenizer, documents, seed=0, chat_share=0.0)
    starts = range(0, len(ids) - LENGTH - 2, LENGTH)[:limit]
    rows = [score(family, c, params, bias, np.array(ids[s : s + LENGTH + 2], np.int32)[None]) for s in starts]
    return np.mean(rows, 0)


class Feed:
    """Windows of the text, epoch after epoch; its place is kept in the run's meta data."""

    def __init__(self, tokenizer, meta):
        self.tokenizer, self.meta, self.documents = tokenizer, meta, corpus.split()[0]
        self.queue = windows(tokenizer, self.documents, meta["epoch"])

    def next(self):
        meta = self.meta
        if meta["window"] == len(self.queue):
            meta["epoch"], meta["window"] = meta["epoch"] + 1, 0
            self.queue = windows(self.tokenizer, self.documents, meta["epoch"])
        meta["window"] += 1
        meta["tokens"] += LENGTH
        return self.queue[meta["window"] - 1]


def step(family, c, trees, meta, feed, progress):
    """One optimiser step; returns (losses [3], the busiest expert's share, norm of the gradients)."""
    alone = progress >= DRAFT_FROM
    select = functools.partial(of_draft, c) if alone else dict
    params, first, second = (select(trees[k]) for k in ("params", "first", "second"))
    bias, since = trees["bias"]["bias"], -1 if alone else 0
    sums = jax.tree.map(jnp.zeros_like, params), jnp.zeros(3), jnp.zeros_like(bias[since:])
    for _ in range(MICRO_BATCHES):
        if alone:
            sums = accumulate_draft(family, c, params, trees["params"], sums, bias, feed.next())
        else:
            sums = accumulate(family, c, params, sums, bias, feed.next()[:, :-1], progress >= SPARSE_FROM)
    meta["step"] += 1
    grads, parts, load = sums
    busiest = load.max()
    params, first, second, steered, norm = optimiser.update(
        params, first, second, grads, bias[since:], load, rate_at(progress), float(meta["step"])
    )
    for kind, tree in dict(params=params, first=first, second=second).items():
        trees[kind] = trees[kind] | tree
    trees["bias"] = {"bias": jnp.concatenate([bias[:since], steered]) if alone else steered}
    return np.asarray(parts), float(busiest), float(norm)


def run(family, args):
    c = family.Config()
    tokenizer = Tokenizer.from_file(str(corpus.MODELS / f"{family.NAME}-demo" / "tokenizer.json"))
    trees, meta = snapshot.load(family) if snapshot.path(family).exists() else snapshot.start(family, c, args.inherit)
    feed, kept_out = Feed(tokenizer, meta), corpus.split()[1]
    measured = lambda limit=None: held_out(family, c, trees["params"], trees["bias"]["bias"], tokenizer, kept_out, limit)
    print("at the start: held-out target {:.3f} draft {:.3f} on 4 windows".format(*measured(4)), flush=True)
    began = last_save = last_log = time.monotonic()
    before, end = meta["seconds"], 60 * args.minutes
    while (progress := meta["seconds"] / end) < 1.0:
        parts, busiest, norm = step(family, c, trees, meta, feed, progress)
        now = time.monotonic()
        if meta["step"] == 1:
            began = now  # the first step is mostly compilation
        meta["seconds"] = before + now - began
        if now - last_log > 20:
            print(f"step {meta['step']} tokens {meta['tokens']} epoch {meta['epoch']} seconds {meta['seconds']:.0f} loss "
                  f"{parts[0]:.3f} draft {parts[1]:.3f} indexer {parts[2]:.3f} gradient {norm:.2f} busiest expert "
                  f"{busiest:.2f} rate {rate_at(progress):.2f} cpu {time.process_time():.0f}", flush=True)  # fmt: skip
            last_log = now
        if now - last_save > 60 * args.snapshot_minutes or meta["seconds"] >= end:
            snapshot.save(family, trees, meta)
            last_save = now
            print("snapshot; held-out target {:.3f} draft {:.3f} on 4 windows".format(*measured(4)), flush=True)
    print("held-out, all: target {:.4f} draft {:.4f} nats per token".format(*measured()), flush=True)


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("family", choices=("k3", "glm"))
    args.add_argument("--minutes", type=float, required=True, help="training time, earlier runs of this state counted in")
    args.add_argument("--inherit", type=pathlib.Path, help="folder of a Kimi-Linear checkpoint to start from")
    args.add_argument("--snapshot-minutes", type=float, default=5.0)
    args = args.parse_args()
    jax.config.update("jax_compilation_cache_dir", str(corpus.BUILD / "compiled"))
    run(importlib.import_module(args.family), args)


if __name__ == "__main__":
    main()
