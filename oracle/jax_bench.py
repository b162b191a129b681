"""Speed of a model folder under JAX's jit on this CPU, in float32: the yardstick for Tandem's own programs.

    jax_bench.py ../models/k3-demo --batches 2,4,8,16 --context 256 --chunk 256
    jax_bench.py fixtures/glm-1 --check

Decode: one step for a batch at the given number of cached tokens, donated caches with room for little more than that,
greedy choice inside the program; the median over many steps. Prefill: one sequence, a prompt of several chunks one after
the other; the median speed. Prints one JSON object.

`--check` continues the prompts of the folder's `expected.json` and `greedy.json`, all in one batch, by the same programs:
the tokens must be those recorded.
"""

import argparse
import json
import pathlib
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from jax_families import Model

CHECK_CHUNK = 64


def stacked(caches):
    return jax.tree.map(lambda *x: jnp.stack(x), *caches)


def timed(call, state, repeats):
    """Median seconds of call(state) -> state, after two warm-up calls; the state is donated each time."""
    seconds = []
    for i in range(repeats + 2):
        began = time.perf_counter()
        state = jax.block_until_ready(call(state))
        if i >= 2:
            seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def decode(model, batch, context, repeats):
    """Seconds of a step."""
    step = jax.jit(model.decode, donate_argnums=1)
    room = -(-(context + repeats + 2) // 64) * 64
    tokens, position = np.full(batch, 5, np.int32), np.full(batch, context, np.int32)

    def call(state):
        caches, tokens, position = state
        caches, tokens = step(model.weights, caches, tokens, position)
        return caches, tokens, position + 1

    return timed(call, (stacked([model.empty(room)] * batch), tokens, position), repeats)


def prefill(model, chunk, chunks, repeats):
    """Tokens a second of a prompt of several chunks."""
    run = jax.jit(model.prefill, donate_argnums=1)
    ids = np.random.default_rng(0).integers(16, model.vocabulary, (chunks, chunk)).astype(np.int32)

    def call(caches):
        for i, part in enumerate(ids):
            caches, _ = run(model.weights, caches, part, np.int32(i * chunk))
        return caches

    return chunk * chunks / timed(call, model.empty(chunk * chunks), repeats)


def continued(model, prompts, count):
    """`count` greedy tokens after each prompt: whole chunks by prefill, the rest of the prompts and all that follows by
    decode steps of one batch, whose rows are at positions of their own."""
    room = -(-(max(map(len, prompts)) + count) // CHECK_CHUNK) * CHECK_CHUNK
    run, step = jax.jit(model.prefill, donate_argnums=1), jax.jit(model.decode, donate_argnums=1)
    caches, tokens, position = [], [], []
    for ids in prompts:
        cache, token, whole = model.empty(room), -1, len(ids) // CHECK_CHUNK * CHECK_CHUNK
        for start in range(0, whole, CHECK_CHUNK):
            cache, token = run(model.weights, cache, np.array(ids[start : start + CHECK_CHUNK], np.int32), np.int32(start))
        caches, tokens, position = caches + [cache], tokens + [int(token)], position + [whole]
    caches, out = stacked(caches), [[] for _ in prompts]
    while min(map(len, out)) < count:
        for row, ids in enumerate(prompts):
            if position[row] < len(ids):
                tokens[row] = ids[position[row]]
            elif len(out[row]) < count:
                out[row].append(int(tokens[row]))
        at = np.minimum(position, room - 1)  # rows that are done wait there
        caches, tokens = step(model.weights, caches, np.array(tokens, np.int32), at.astype(np.int32))
        tokens, position = np.array(tokens), [p + 1 for p in position]
    return out


def check(model, folder):
    """Number of prompts whose greedy tokens are those recorded in the folder; exits at the first that differs."""
    records = []
    for name, prompt, tokens in (("expected.json", "ids", "greedy"), ("greedy.json", "prompt_ids", "generated_ids")):
        if (folder / name).exists():
            prompts = json.loads((folder / name).read_text())["prompts"]
            records += [(name, one[prompt], one[tokens]) for one in prompts]
    if not records:
        raise SystemExit(f"{folder} has neither expected.json nor greedy.json")
    got = continued(model, [ids for _, ids, _ in records], max(len(tokens) for _, _, tokens in records))
    for (name, ids, tokens), own in zip(records, got):
        if own[: len(tokens)] != tokens:
            same = next(i for i, (a, b) in enumerate(zip(own, tokens)) if a != b)
            raise SystemExit(f"{name}: after a prompt of {len(ids)} tokens, token {same} differs from the judge's")
    return len(records)


def numbers(text):
    return [int(x) for x in text.split(",") if x]


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("folder", type=pathlib.Path)
    args.add_argument("--batches", type=numbers, default=[2, 4, 8, 16])
    args.add_argument("--context", type=int, default=256)
    args.add_argument("--chunk", type=int, default=256)
    args.add_argument("--chunks", type=int, default=8, help="chunks of the prompt that prefill reads")
    args.add_argument("--repeats", type=int, default=60)
    args.add_argument("--check", action="store_true", help="compare with the judge's tokens instead of measuring")
    args = args.parse_args()
    model = Model(args.folder)
    if args.check:
        print(check(model, args.folder), "prompts agree")
        return
    report = {
        "jax": jax.__version__,
        "context": args.context,
        "decode_step_seconds": {str(b): decode(model, b, args.context, args.repeats) for b in args.batches},
        "prefill_chunk_tokens": args.chunk,
        "prefill_tokens_per_second": prefill(model, args.chunk, args.chunks, max(args.repeats // 8, 5)),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
