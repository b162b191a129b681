"""Writes `greedy.json` into a demo checkpoint's folder: prompts and how its judge continues them greedily, float32, CPU.

    greedy.py ../models/k3-demo          # mlx-lm;  ../models/glm-demo: transformers

Prompts of 1 to 600 tokens come from the held-out chapters, some of them as a conversation under the chat template. A
recorded continuation ends before the first position where the best two logits are closer than TIE, since there another
correct implementation may choose the other token; it also ends after an end-of-text token.
"""

import argparse
import importlib
import json
import pathlib
import sys

import numpy
from transformers import PreTrainedTokenizerFast

MODELS = pathlib.Path(__file__).resolve().parent.parent / "models"
TIE = 1e-4
LENGTHS = [1, 2, 3, 5, 8, 13, 15, 16, 17, 24, 31, 32, 33, 40, 48, 63, 64, 65, 80, 96, 100, 127, 128, 129, 150, 180, 200, 255,
           256, 257, 300, 333, 400, 444, 511, 512, 513, 555, 600]  # fmt: skip
CHATS = 16
JUDGES = {
    "kimi_k3": ("k3_judge", "mlx-lm 0.32.2, mlx 0.32.4, float32, CPU"),
    "glm5_next": ("glm_judge", "transformers 5.24.0, torch 2.15.0, float32, CPU"),
}


def opened(folder):
    """(judge as `record.py` describes it, what it is, end-of-text ids, tokenizer) of a checkpoint's folder."""
    config = json.loads((folder / "config.json").read_text())
    module, source = JUDGES[config["model_type"]]
    ends = config["eos_token_id"]
    ends = set(ends if isinstance(ends, list) else [ends])
    return importlib.import_module(module).Judge(folder), source, ends, PreTrainedTokenizerFast.from_pretrained(folder)


def held_out():
    """The held-out chapters, as the training code defines them."""
    sys.path.insert(0, str(MODELS / "training"))
    import corpus

    return corpus.split()[1], corpus.plain


def prompts(tokenizer):
    """[(kind, text, ids)]: running text cut to each length, then single questions under the chat template."""
    chapters, plain = held_out()
    out = []
    for i, length in enumerate(LENGTHS):
        text = "\n\n".join(plain(chapters[(i + j) % len(chapters)]) for j in range(3))[:4000]
        ids = tokenizer(text)["input_ids"][:length]
        out.append(("completion", tokenizer.decode(ids, skip_special_tokens=True), ids))
    for i in range(CHATS):
        text = chapters[i % len(chapters)][2][i // len(chapters) + i % 5]
        chat = [{"role": "user", "content": text}]
        out.append(("chat", text, tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]))
    return out


def continuation(judge, ids, count, ends):
    """(greedy tokens, smallest distance of the best two logits, why it stopped)."""
    state, logits = judge.start(ids)
    tokens, closest = [], float("inf")
    while len(tokens) < count:
        best = numpy.sort(logits)[-2:]
        gap = float(best[1] - best[0])
        if gap < TIE:
            return tokens, closest, "tie"
        closest = min(closest, gap)
        tokens.append(int(logits.argmax()))
        if tokens[-1] in ends:
            return tokens, closest, "end"
        logits = judge.step(state, tokens[-1])
    return tokens, closest, "length"


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("folder", type=pathlib.Path)
    args.add_argument("--count", type=int, default=64, help="most tokens per prompt")
    args = args.parse_args()
    judge, source, ends, tokenizer = opened(args.folder)
    records = []
    for kind, text, ids in prompts(tokenizer):
        tokens, closest, stop = continuation(judge, ids, args.count, ends)
        if tokens:
            record = {"kind": kind, "prompt": text, "prompt_ids": ids, "generated_ids": tokens, "closest": closest, "stop": stop}
            records.append(record | {"continuation": tokenizer.decode(tokens, skip_special_tokens=True)})
        print(kind, len(ids), len(tokens), stop, flush=True)
    header = {
        "source": source,
        "note": f"a continuation ends (stop: tie) before the first position whose best two logits are closer than {TIE}",
        "prompts": records,
    }
    text = json.dumps(header, ensure_ascii=False).replace('{"kind"', '\n{"kind"')
    (args.folder / "greedy.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
