"""Held-out perplexity of the demo checkpoint by transformers, float32: windows of 512 tokens of running text, as in training.

    perplexity.py --windows 12
"""

import argparse
import math
import random

import torch
from transformers import AutoTokenizer, KimiLinearForCausalLM

from greedy import MODEL, held_out

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


@torch.no_grad()
def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--windows", type=int, default=None, help="only the first so many")
    count = args.parse_args().windows
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = KimiLinearForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager").eval()
    losses = []
    for window in windows(tokenizer)[:count]:
        logits = model(input_ids=torch.tensor([window[:-1]]), use_cache=False).logits[0]
        losses.append(float(torch.nn.functional.cross_entropy(logits, torch.tensor(window[1:]))))
    mean = sum(losses) / len(losses)
    print(f"{len(losses)} windows: {mean:.4f} nats per token, perplexity {math.exp(mean):.2f}")


if __name__ == "__main__":
    main()
