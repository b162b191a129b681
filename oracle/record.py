"""What is recorded of a judge: prompts with a safe greedy continuation, layer outputs, drafts, bfloat16 error.

A judge (see `k3_judge.py`, `glm_judge.py`, `kimi_linear.py`) is an object with

    vocabulary                   ids are drawn from 3 .. vocabulary
    start(ids)                   -> (state, logits [V] after the last id), with a cache
    step(state, id)              -> logits [V]
    whole(ids)                   -> logits [T, V] without a cache
    margin                       smallest gap at any discrete choice (experts, pools) since it was last reset; infinity if unknown
    rounded(ids)                 -> logits [V] after the last id, all in bfloat16
    layers(ids)                  -> per layer, the last token's residual after it
    drafts(ids, first)           -> (3 ids, 3 x logits [V]) of the MTP layer after the whole prompt, `first` being the token drawn

All vectors are float32 numpy arrays.
"""

import json

import numpy
import torch

GREEDY = 64
TIE = 2e-3
MARGIN = 1e-5
LENGTHS = [1, 2, 3, 4, 5, 15, 16, 17, 31, 64, 65, 100, 200, 300]
LAYERED = [5, 65, 200]
DRAFTED = [1, 5, 65, 200]


def shortest(values):
    """Float32 numbers as the shortest decimals that give them back."""
    return [float(str(x)) for x in numpy.asarray(values, numpy.float32).ravel()]


def distance(logits):
    best = numpy.sort(logits)[-2:]
    return float(best[1] - best[0])


def continuation(judge, ids):
    """(logits after the prompt, greedy tokens, smallest distance of the best two logits); stops at a near-tie."""
    state, logits = judge.start(ids)
    first, tokens, closest = logits, [], float("inf")
    for _ in range(GREEDY):
        closest = min(closest, distance(logits))
        if min(closest / TIE, judge.margin / MARGIN) < 1:
            break
        tokens.append(int(logits.argmax()))
        logits = judge.step(state, tokens[-1])
    return first, tokens, closest


def prompt_of(judge, length, generator, layered=False, drafted=False):
    """One prompt with a safe continuation, confirmed by a run over the whole sequence without a cache."""
    for _ in range(400):
        ids = torch.randint(3, judge.vocabulary, (1, length), generator=generator)[0].tolist()
        judge.margin = float("inf")
        logits, tokens, closest = continuation(judge, ids)
        if min(closest / TIE, judge.margin / MARGIN) < 1:
            continue
        chain = judge.drafts(ids, tokens[0]) if drafted else None
        if chain and min(min(distance(x) for x in chain[1]) / TIE, judge.margin / MARGIN) < 1:
            continue
        whole = judge.whole(ids + tokens)
        assert whole[length - 1 : -1].argmax(-1).tolist() == tokens
        out = {"ids": ids, "logits": shortest(logits), "greedy": tokens, "closest": closest}
        out["bf16_error"] = float(f"{numpy.abs(judge.rounded(ids) - logits).max():.4g}")
        if layered:
            out["layers"] = [shortest(x) for x in judge.layers(ids)]
        if chain:
            out["mtp"] = {"token": tokens[0], "drafts": chain[0], "logits": [shortest(x) for x in chain[1]]}
        return out
    raise SystemExit(f"no prompt of {length} tokens without a near-tie")


def prompts(judge, generator, lengths=LENGTHS, layered=LAYERED, drafted=DRAFTED):
    return [prompt_of(judge, n, generator, n in layered, n in drafted) for n in lengths]


def write(folder, source, naming, prompts):
    text = json.dumps({"source": source, "naming": naming, "prompts": prompts}).replace('{"ids"', '\n{"ids"')
    (folder / "expected.json").write_text(text + "\n")
    size = sum(p.stat().st_size for p in folder.iterdir())
    spread = len({t for p in prompts for t in p["greedy"]})
    worst = max(p["bf16_error"] for p in prompts)
    closest = min(p["closest"] for p in prompts)
    print(f"{folder.name}: {size} bytes, {spread} different tokens, closest {closest:.4f}, worst bf16 error {worst:.3f}", flush=True)
