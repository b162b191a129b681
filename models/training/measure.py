"""Measures the last snapshot as it is exported (weights rounded to bfloat16): held-out perplexity, how often the drafts are
accepted, and samples. Prints JSON.

    python measure.py k3

Acceptance is measured along the model's own continuations of held-out text. From every position of a continuation the draft
layer makes three drafts in a row, as a server does: the first from the target's hidden vector and the token just drawn, the
others from the draft before. A draft is accepted when it is the token that the target draws at that position, and all drafts
before it were. At temperature 0.8 target and draft add the same Gumbel noise to their scaled logits.
"""

import argparse
import functools
import importlib
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer

import corpus
import indexer
import mla
import mtp
import snapshot
import train
from draw import of_layer
from norm import rms

PROMPTS, PROMPT, COUNT, DRAFTS, TEMPERATURE = 12, 128, 64, 3, 0.8


@functools.partial(jax.jit, static_argnums=(0, 1))
def scores_at(family, c, params, bias, ids, position):
    """Logits [B,V] after the token at `position`."""
    x = family.trunk(c, params, bias, ids)[0]
    return jax.lax.dynamic_index_in_dim(x, position, 1, False) @ params["head"]


def continued(family, c, params, bias, prompts, noise, temperature):
    """prompts [B,P] with noise.shape[1] more tokens. noise [B,count,V] is added to the logits over the temperature."""
    b, p = prompts.shape
    ids = np.zeros((b, max(p + noise.shape[1], PROMPT + COUNT)), np.int32)
    ids[:, :p] = prompts
    for i in range(noise.shape[1]):
        logits = np.asarray(scores_at(family, c, params, bias, ids, p + i - 1))
        ids[:, p + i] = (logits / temperature + noise[:, i]).argmax(-1)
    return ids[:, : p + noise.shape[1]]


def attend(c, w, x, lines, allowed, own):
    """The draft layer's attention for one draft at every slot at once. lines: (k, v) [B,H,T,K] of the known slots; allowed
    [B,T,T]; own: [(k, v)] of this chain's earlier drafts at each slot, to which this one's is added, or None where a draft
    reads only known lines. Returns (x after attention, own)."""
    q, k, v, _, gate = mla.projections(c, w, rms(x, w["attn_norm"], c.eps))
    scores = jnp.where(allowed[:, None], q @ lines[0].mT, -1e30)
    own = None if own is None else own + [(k, v)]
    extra = [(q * k).sum(-1, keepdims=True) for k, _ in own or []]
    share = jax.nn.softmax(jnp.concatenate([scores, *extra], -1), -1)
    t = scores.shape[-1]
    out = share[..., :t] @ lines[1] + sum(share[..., t + i, None] * v for i, (_, v) in enumerate(own or []))
    return x + mla.joined(c, w, out, gate), own


@functools.partial(jax.jit, static_argnums=(0, 1))
def chain(family, c, params, bias, ids, noise, temperature):
    """Drafts [DRAFTS,B,T]: draft i of slot t is for position t + 2 + i. ids [B,T+1]; noise [B,T+1+DRAFTS,V] by the position
    of the token drawn."""
    t = ids.shape[1] - 1
    w, head = of_layer(params, c.layers), params["head"]
    h = family.trunk(c, params, bias, ids[:, :t])[1]
    x = mtp.inputs(c, w, mtp.shifted(params, ids[:, 1:]), h)
    normed = rms(x, w["attn_norm"], c.eps)
    _, k, v, query, _ = mla.projections(c, w, normed)
    allowed = jnp.broadcast_to(jnp.tril(jnp.ones((t, t), bool)), (ids.shape[0], t, t))
    sparse = "index_q" in w
    if sparse:
        penalty = indexer.penalty(indexer.select(c, w, normed, query, True)[1])
        allowed = allowed & (jnp.repeat(penalty, indexer.POOL, -1) == 0)
    logits, recycled, _, _ = family.draft(c, params, bias, ids[:, 1:], h)
    drafts, own = [], None if sparse else []
    for i in range(DRAFTS):
        drafts.append((logits @ head / temperature + noise[:, 2 + i : 2 + i + t]).argmax(-1))
        x = mtp.inputs(c, w, params["embed"][drafts[-1]], recycled)
        x, own = attend(c, w, x, (k, v), allowed, own)
        x, _ = mtp.feed_forward(c, w, bias[-1], x)
        logits = rms(x, w["head_norm"], c.eps)
        recycled = logits if family.NAME == "glm" else x
    return jnp.stack(drafts)


def acceptance(family, c, params, bias, prompts, temperature, seed=0):
    """(agreement of each draft [DRAFTS], mean number of accepted drafts in a row)."""
    b, p = prompts.shape
    rng, v = np.random.default_rng(seed), params["head"].shape[1]
    noise = np.zeros((b, p + COUNT + DRAFTS + 1, v), np.float32)
    if temperature:
        noise[:, p : p + COUNT] = rng.gumbel(size=(b, COUNT, v))
    scale = temperature or 1.0
    ids = continued(family, c, params, bias, prompts, noise[:, p : p + COUNT], scale)
    padded = np.concatenate([ids, np.zeros((b, 1), np.int32)], 1)
    drafts = np.asarray(chain(family, c, params, bias, padded, noise, scale))
    slots = range(p - 1, p + COUNT - 1 - DRAFTS)
    right = np.array([[drafts[i][:, t] == ids[:, t + 2 + i] for t in slots] for i in range(DRAFTS)])
    return right.mean((1, 2)), np.cumprod(right, 0).sum(0).mean()


def prompts_of(tokenizer, documents):
    ids = corpus.stream(tokenizer, documents, seed=1, chat_share=0.0)
    starts = np.linspace(0, len(ids) - PROMPT, PROMPTS).astype(int)
    return np.array([ids[s : s + PROMPT] for s in starts], np.int32)


def samples(family, c, params, bias, tokenizer, seed=3):
    """[(text, kind, continuation)] for a model card."""
    verse, plain = "And it came to pass, when the king", lambda s: tokenizer.encode(s, add_special_tokens=False).ids
    question = corpus.split()[1][1][2][0]
    chat = [corpus.BOS, corpus.USER, *plain(question), corpus.ASSISTANT]
    out, rng = [], np.random.default_rng(seed)
    for kind, ids, text, temperature in (
        ("greedy", [corpus.BOS, *plain(verse)], verse, 0.0),
        ("temperature 0.8", [corpus.BOS, *plain(verse)], verse, TEMPERATURE),
        ("temperature 0.8, chat", chat, question, TEMPERATURE),
    ):
        noise = rng.gumbel(size=(1, 80, c.vocab)).astype(np.float32) * (temperature > 0)
        more = continued(family, c, params, bias, np.array([ids], np.int32), noise, temperature or 1.0)[0, len(ids) :]
        out.append((text, kind, tokenizer.decode(more.tolist(), skip_special_tokens=False)))
    return out


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("family", choices=("k3", "glm"))
    family = importlib.import_module(args.parse_args().family)
    jax.config.update("jax_compilation_cache_dir", str(corpus.BUILD / "compiled"))
    c = family.Config()
    tokenizer = Tokenizer.from_file(str(corpus.MODELS / f"{family.NAME}-demo" / "tokenizer.json"))
    trees, meta = snapshot.load(family)
    rounded = lambda x: jnp.asarray(x, jnp.bfloat16).astype(jnp.float32)
    params, bias = jax.tree.map(rounded, trees["params"]), rounded(trees["bias"]["bias"])
    out, kept_out = dict(meta), corpus.split()[1]
    target, draft = map(float, train.held_out(family, c, params, bias, tokenizer, kept_out))
    out |= {"nats": target, "perplexity": math.exp(target), "draft nats": draft}
    prompts = prompts_of(tokenizer, kept_out)
    for name, temperature in ("greedy", 0.0), (f"temperature {TEMPERATURE}", TEMPERATURE):
        agreement, accepted = acceptance(family, c.exact(), params, bias, prompts, temperature)
        out[name] = {"drafts right": agreement.round(4).tolist(), "accepted of 3": round(float(accepted), 3)}
        print(name, out[name], flush=True)
    out["samples"] = samples(family, c.exact(), params, bias, tokenizer)
    print(json.dumps(out, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
