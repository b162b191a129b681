"""Writes `fixtures/<name>/`: tiny random checkpoints in Hugging Face form and what outside implementations compute with them.

Everything is float32 on the CPU; the weights are representable in bfloat16 and stored so, hence exact. `expected.json` is
described in README.md. A prompt whose continuation passes a near-tie of two tokens, experts or pools is drawn again, so
every recorded token is a safe one.
"""

import argparse
import importlib
import pathlib

import torch

FAMILIES = ("kimi_linear", "k3", "glm", "quantised")


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("names", nargs="*", help="which ones; all by default")
    args.add_argument("--into", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent / "fixtures")
    args = args.parse_args()
    torch.set_num_threads(1)
    for family in map(importlib.import_module, FAMILIES):
        for name, options in family.FIXTURES.items():
            if name in args.names or not args.names:
                family.make(args.into / name, **options)


if __name__ == "__main__":
    main()
