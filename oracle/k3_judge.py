"""Kimi K3 by mlx-lm (`mlx_lm/models/kimi_k3.py`), and its MTP layer.

The MTP layer is mlx-lm's own decoder layer without AttnRes, wired as vLLM's `kimi_k3/nvidia/mtp.py` does it.
"""

import dataclasses
import json

import mlx.core as mx
import mlx.nn as nn
import numpy
from mlx_lm.models import kimi_k3


class Recorded:
    """A module that keeps what it was given."""

    def __init__(self, inner):
        self.inner, self.seen = inner, None

    def __call__(self, x):
        self.seen = x
        return self.inner(x)


class Network:
    """mlx-lm's model and its MTP layer, in one number format."""

    def __init__(self, folder, rounded):
        config = json.loads((folder / "config.json").read_text())
        weights = dict(mx.load(str(folder / "model.safetensors")))
        self.args = kimi_k3.ModelArgs.from_dict(config)
        model = kimi_k3.Model(self.args)
        self.load(model, model.sanitize(dict(weights)), rounded)
        self.model = model.language_model
        self.norm = self.model.model.norm = Recorded(self.model.model.norm)
        self.mtp(weights, rounded)

    def load(self, module, weights, rounded):
        keep = kimi_k3.LanguageModel.cast_predicate.fget(None)
        cast = lambda n, x: x.astype(mx.bfloat16 if rounded and keep(n) else mx.float32)
        module.load_weights([(n, cast(n, x)) for n, x in weights.items()], strict=True)
        module.eval()

    def mtp(self, weights, rounded):
        """The draft layer, by the same sanitiser: as the last layer of a model without AttnRes."""
        text = self.args.text_config
        n = text.num_hidden_layers
        plain = dataclasses.replace(text, num_hidden_layers=n + 1, attn_res_block_size=None)
        at = f"model.layers.{n}."
        own = {k.removeprefix("language_model."): x for k, x in weights.items()}
        own = {k: x for k, x in own.items() if k.startswith(at) and "_res_" not in k}
        block = {k.removeprefix(at): x for k, x in kimi_k3.LanguageModel(plain).sanitize(own).items()}
        self.draft = nn.Module()
        d, v = text.hidden_size, text.vocab_size
        for name in ("enorm", "hnorm"):
            setattr(self.draft, name, nn.RMSNorm(d, eps=text.rms_norm_eps))
        self.draft.eh_proj = nn.Linear(2 * d, d, bias=False)
        self.draft.shared_head = nn.Module()
        self.draft.shared_head.norm = nn.RMSNorm(d, eps=text.rms_norm_eps)
        if "shared_head.head.weight" in block:
            self.draft.shared_head.head = nn.Linear(d, v, bias=False)
        if "embed_tokens.weight" in block:
            self.draft.embed_tokens = nn.Embedding(v, d)
        self.draft.block = kimi_k3.KimiK3DecoderLayer(plain, n)
        assert not self.draft.block.is_linear
        outer = ("enorm", "hnorm", "eh_proj", "shared_head", "embed_tokens")
        self.load(self.draft, {k if k.startswith(outer) else "block." + k: x for k, x in block.items()}, rounded)

    def drafts(self, ids, first):
        """Ids shifted left by one with `first` at the end, then a chain; the block's output is passed on before its norm."""
        self.model(mx.array([ids]))
        hidden, tokens = self.norm.seen, ids[1:] + [first]
        embed = getattr(self.draft, "embed_tokens", self.model.model.embed_tokens)
        head = getattr(self.draft.shared_head, "head", self.model.lm_head)
        cache, chain, logits = kimi_k3.KVCache(), [], []
        for _ in range(3):
            e = embed(mx.array([tokens]))
            if cache.offset == 0:
                e = mx.concatenate([mx.zeros_like(e[:, :1]), e[:, 1:]], axis=1)
            x = self.draft.eh_proj(mx.concatenate([self.draft.enorm(e), self.draft.hnorm(hidden)], axis=-1))
            mask = kimi_k3.create_attention_mask(x, cache, return_array=True)
            hidden, _ = self.draft.block(x, mask=mask, cache=cache)
            hidden = hidden[:, -1:]
            logits.append(head(self.draft.shared_head.norm(hidden))[0, -1])
            tokens = [int(mx.argmax(logits[-1]).item())]
            chain += tokens
        return chain, logits


class Judge:
    def __init__(self, folder):
        self.exact, self.low = Network(folder, False), Network(folder, True)
        self.vocabulary = self.exact.args.text_config.vocab_size
        self.margin = float("inf")

    def numbers(self, x):
        """To numpy, folding in the gaps seen at the routers on the way."""
        out = numpy.array(x.astype(mx.float32))
        if GAPS:
            self.margin = min(self.margin, min(float(g.item()) for g in GAPS))
            GAPS.clear()
        return out

    def start(self, ids):
        cache = self.exact.model.make_cache()
        return cache, self.numbers(self.exact.model(mx.array([ids]), cache)[0, -1])

    def step(self, cache, token):
        return self.numbers(self.exact.model(mx.array([[token]]), cache)[0, -1])

    def whole(self, ids):
        return self.numbers(self.exact.model(mx.array([ids]))[0])

    def rounded(self, ids):
        return self.numbers(self.low.model(mx.array([ids]))[0, -1])

    def layers(self, ids):
        seen, call = [], kimi_k3.KimiK3DecoderLayer.__call__

        def tapped(layer, *args, **more):
            out = call(layer, *args, **more)
            seen.append(out[0][0, -1])
            return out

        kimi_k3.KimiK3DecoderLayer.__call__ = tapped
        try:
            self.exact.model(mx.array([ids]))
        finally:
            kimi_k3.KimiK3DecoderLayer.__call__ = call
        return [self.numbers(x) for x in seen]

    def drafts(self, ids, first):
        chain, logits = self.exact.drafts(ids, first)
        return chain, [self.numbers(x) for x in logits]


GAPS = []


def watched(select):
    """Notes how far apart the last chosen and the first unchosen expert are."""

    def chosen(gates, bias, top_k, *rest):
        scores = mx.sort(mx.sigmoid(gates.astype(mx.float32)) + bias, axis=-1)
        GAPS.append((scores[..., -top_k] - scores[..., -top_k - 1]).min())
        return select(gates, bias, top_k, *rest)

    return chosen


def gather_any(a, b, *args, **more):
    """mlx has no gathered bfloat16 product on the CPU: products in float32, rounded once at the end."""
    return gather_mm(a.astype(mx.float32), b.astype(mx.float32), *args, **more).astype(a.dtype)


mx.set_default_device(mx.cpu)
gather_mm, mx.gather_mm = mx.gather_mm, gather_any
kimi_k3._group_expert_select = watched(kimi_k3._group_expert_select)
