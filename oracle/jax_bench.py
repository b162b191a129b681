"""Speed of a Kimi-Linear folder under JAX's jit on this CPU, in float32: the yardstick for Tandem's own programs.

    jax_bench.py ../models/tandem-demo --batches 1,4,8,16 --context 1024 --chunk 512

Decode: one step for a batch (1 runs as 2 rows, since XLA's one-row products are a special case) at the given number of
cached tokens, donated caches, absorbed MLA over a contiguous latent cache, greedy choice inside the program; the median
over many steps. Prefill: one sequence, a prompt of several chunks one after the other, chunked KDA; the median speed.
`--layers unrolled|scan` picks how the layers are laid out. Prints one JSON object.
"""

import argparse
import functools
import json
import statistics
import time

import jax
import numpy as np

import jax_model


def timed(call, state, repeats):
    """Median seconds of call(state) -> state, after two warm-up calls; the state is donated each time."""
    seconds = []
    for i in range(repeats + 2):
        began = time.perf_counter()
        state = jax.block_until_ready(call(state))
        if i >= 2:
            seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def decode(model, batch, context, layout, repeats):
    rows = max(batch, 2)
    cache = model.empty(rows, context + repeats + 2)
    tokens, position = np.full(rows, 5, np.int32), np.full(rows, context, np.int32)
    step = jax.jit(functools.partial(model.decode, layout=layout), donate_argnums=1)
    weights = model.weights(layout)

    def call(state):
        cache, tokens, position = state
        cache, tokens = step(weights, cache, tokens, position)
        return cache, tokens, position + 1

    return timed(call, (cache, tokens, position), repeats)


def prefill(model, chunk, chunks, layout, repeats):
    """Tokens per second of a prompt of several chunks."""
    run = jax.jit(functools.partial(model.prefill, layout=layout), donate_argnums=1)
    weights = model.weights(layout)
    ids = np.random.default_rng(0).integers(6, model.config["vocab_size"], (chunks, 1, chunk)).astype(np.int32)

    def call(cache):
        for i, part in enumerate(ids):
            cache, _ = run(weights, cache, part, np.int32(i * chunk))
        return cache

    return chunk * chunks / timed(call, model.empty(1, chunk * chunks), repeats)


def check(model, path, layout):
    """Runs the prompts of an `expected.json` whose length is a multiple of the tile; the greedy tokens must be the same."""
    run = jax.jit(functools.partial(model.prefill, layout=layout))
    step = jax.jit(functools.partial(model.decode, layout=layout))
    weights = model.weights(layout)
    with open(path) as f:
        prompts = [p for p in json.load(f)["prompts"] if len(p["ids"]) % jax_model.TILE == 0]
    for prompt in prompts:
        length = len(prompt["ids"])
        cache, token = run(weights, model.empty(1, 512), np.array([prompt["ids"]], np.int32), np.int32(0))
        got = [int(token[0])]
        for i in range(len(prompt["greedy"]) - 1):
            cache, token = step(weights, cache, token, np.array([length + i], np.int32))
            got.append(int(token[0]))
        assert got == prompt["greedy"], f"{length} tokens: differs from transformers"
    return len(prompts)


def numbers(text):
    return [int(x) for x in text.split(",") if x]


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("folder")
    args.add_argument("--batches", type=numbers, default=[2, 4, 8, 16])
    args.add_argument("--context", type=int, default=256)
    args.add_argument("--chunk", type=int, default=256)
    args.add_argument("--chunks", type=int, default=8, help="chunks of the prompt that prefill reads")
    args.add_argument("--layers", choices=["unrolled", "scan"], default="unrolled")
    args.add_argument("--repeats", type=int, default=60)
    args.add_argument("--check", metavar="EXPECTED_JSON", help="compare with a fixture instead of measuring")
    args = args.parse_args()
    model = jax_model.Model(args.folder)
    if args.check:
        print(check(model, args.check, args.layers), "prompts agree")
        return
    steps = {str(b): decode(model, b, args.context, args.layers, args.repeats) for b in args.batches}
    report = {
        "jax": jax.__version__,
        "layers": args.layers,
        "context": args.context,
        "decode_step_seconds": steps,
        "prefill_chunk_tokens": args.chunk,
        "prefill_tokens_per_second": prefill(model, args.chunk, args.chunks, args.layers, max(args.repeats // 8, 5)),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
