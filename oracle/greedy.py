"""Writes `greedy.json` into a checkpoint's folder: prompts and how transformers continues them greedily, float32, CPU.

Prompts of 1 to 600 tokens come from the held-out chapters, some of them as a conversation under the chat template. A
recorded continuation ends before the first position where the best two logits are closer than TIE, since there another
correct implementation may choose the other token; it also ends after an end-of-text token.
"""

import argparse
import json
import pathlib
import sys

import torch
from transformers import AutoTokenizer, KimiLinearForCausalLM

MODEL = pathlib.Path(__file__).resolve().parent.parent / "models" / "tandem-demo"
TIE = 1e-4
LENGTHS = [1, 2, 3, 5, 8, 13, 15, 16, 17, 24, 31, 32, 33, 40, 48, 63, 64, 65, 80, 96, 100, 127, 128, 129, 150, 180, 200, 255,
           256, 257, 300, 333, 400, 444, 511, 512, 513, 555, 600]  # fmt: skip
CHATS = 16


def held_out():
    """The held-out chapters, as the training code defines them."""
    sys.path.insert(0, str(MODEL / "training"))
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


@torch.no_grad()
def continuation(model, ids, count, ends):
    """(greedy tokens, smallest distance of the best two logits, why it stopped)."""
    out = model(input_ids=torch.tensor([ids]), use_cache=True)
    tokens, closest = [], float("inf")
    while len(tokens) < count:
        best = out.logits[0, -1].topk(2)
        gap = float(best.values[0] - best.values[1])
        if gap < TIE:
            return tokens, closest, "tie"
        closest = min(closest, gap)
        tokens.append(int(best.indices[0]))
        if tokens[-1] in ends:
            return tokens, closest, "end"
        out = model(input_ids=torch.tensor([tokens[-1:]]), cache=out.cache, use_cache=True)
    return tokens, closest, "length"


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--count", type=int, default=64, help="most tokens per prompt")
    count = args.parse_args().count
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = KimiLinearForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager").eval()
    ends = model.config.eos_token_id
    ends = set(ends if isinstance(ends, list) else [ends])
    records = []
    for kind, text, ids in prompts(tokenizer):
        tokens, closest, stop = continuation(model, ids, count, ends)
        if tokens:
            record = {"kind": kind, "prompt": text, "prompt_ids": ids, "generated_ids": tokens, "closest": closest, "stop": stop}
            records.append(record | {"continuation": tokenizer.decode(tokens, skip_special_tokens=True)})
        print(kind, len(ids), len(tokens), stop, flush=True)
    header = {
        "source": "transformers 5.24.0, torch 2.15.0, float32, CPU",
        "note": f"a continuation ends (stop: tie) before the first position whose best two logits are closer than {TIE}",
        "prompts": records,
    }
    text = json.dumps(header, ensure_ascii=False).replace('{"kind"', '\n{"kind"')
    (MODEL / "greedy.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
