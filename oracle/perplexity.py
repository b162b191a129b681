"""Held-out perplexity of a demo checkpoint by its judge, float32: windows of 512 tokens of running text, as in training.

    perplexity.py ../models/k3-demo --windows 12
"""

import argparse
import math
import pathlib
import random

import numpy

from greedy import held_out, opened

LENGTH = 512


def windows(tokenizer):
    """The held-out chapters in the order in which the training code scores them."""
    chapters, plain = held_out()
    order = list(chapters)
    rng = random.Random(0)
    rng.shuffle(order)
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    ids = [t for c in order for t in [bos, *tokenizer(plain(c), add_special_tokens=False)["input_ids"], eos]]
    return [ids[i : i + LENGTH + 1] for i in range(0, len(ids) - LENGTH - 1, LENGTH)]


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("folder", type=pathlib.Path)
    args.add_argument("--windows", type=int, default=None, help="only the first so many")
    args = args.parse_args()
    judge, _, _, tokenizer = opened(args.folder)
    losses = []
    for window in windows(tokenizer)[: args.windows]:
        logits = judge.whole(window[:-1])
        top = logits.max(-1)
        total = numpy.log(numpy.exp(logits - top[:, None]).sum(-1)) + top
        losses.append(float((total - logits[numpy.arange(LENGTH), window[1:]]).mean()))
    mean = sum(losses) / len(losses)
    print(f"{len(losses)} windows: {mean:.4f} nats per token, perplexity {math.exp(mean):.2f}")


if __name__ == "__main__":
    main()
