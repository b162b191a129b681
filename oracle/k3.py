"""Tiny random Kimi K3 checkpoints and mlx-lm's reading of them (`mlx_lm/models/kimi_k3.py`), MTP layer included.

The MTP layer is mlx-lm's own decoder layer without AttnRes, wired as vLLM's `kimi_k3/nvidia/mtp.py` does.
"""

import dataclasses
import json

import mlx.core as mx
import mlx.nn as nn
import numpy
import torch
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models import kimi_k3
from safetensors.torch import save_file

import record

SOURCE = "mlx-lm 0.32.2, mlx 0.32.4, float32, CPU"
NINE = [4, 8, 9]
STRICT = ("A_log", "dt_bias", "e_score_correction_bias", "conv1d.weight", "o_norm.weight")

# Per fixture: layers and MLA numbers (from 1), changes to `published()`, and how weights are drawn and spelt.
FIXTURES = {
    "k3-1": dict(seed=31, layers=9, mla=NINE),
    "k3-2": dict(seed=32, layers=9, mla=[3, 4, 6, 7, 8, 9], kda=(2, 128), routed_scaling_factor=2.5, spell=dict(padded=128)),
    "k3-3": dict(seed=33, layers=13, mla=[4, 8, 12, 13], spell=dict(float32=True, residual=True)),
    "k3-4": dict(seed=34, layers=9, mla=NINE, attn_res_block_size=3, routed_scaling_factor=2.5, spell=dict(nested=True, padded=3), draw=dict(decay=(0.3, -7.0), common=2.0)),
    "k3-5": dict(seed=35, layers=10, mla=[4, 8, 9], eos_token_id=[2, 5], spell=dict(head=True), draw=dict(decay=(0.7, 4.0), mlp=3.0)),
}  # fmt: skip


def published(layers, mla, kda=(3, 16), **changes):
    """config.json as the published checkpoint spells it, flat."""
    return {
        "architectures": ["KimiK3ForCausalLM"],
        "model_type": "kimi_k3",
        "dtype": "bfloat16",
        "vocab_size": 96,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 1024,
        "linear_attn_config": {
            "num_heads": kda[0],
            "head_dim": kda[1],
            "short_conv_kernel_size": 4,
            "gate_lower_bound": -5.0,
            "use_full_rank_gate": True,
            "kda_layers": [i for i in range(1, layers + 1) if i not in mla],
            "full_attn_layers": mla,
        },
        "hidden_act": "situ",
        "activation_situ_beta": 4.0,
        "activation_situ_linear_beta": 25.0,
        "attn_res_block_size": 4,
        "q_lora_rank": 24,
        "kv_lora_rank": 24,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "mla_use_nope": True,
        "mla_use_output_gate": True,
        "num_experts": 6,
        "num_experts_per_token": 2,
        "num_shared_experts": 2,
        "moe_intermediate_size": 8,
        "moe_router_activation_func": "sigmoid",
        "moe_renormalize": True,
        "routed_scaling_factor": 1.0,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "use_grouped_topk": True,
        "num_expert_group": 1,
        "topk_group": 1,
        "routed_expert_hidden_size": 16,
        "latent_moe_use_norm": True,
        "num_nextn_predict_layers": 1,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    } | changes


def mixer(c, kda, padded):
    """Names and shapes of one layer's `self_attn.`"""
    d, k = c["hidden_size"], c["linear_attn_config"]
    if kda:
        h, n = k["num_heads"], k["head_dim"]
        p = h * n
        projections = {f"{x}_proj.weight": (p, d) for x in "qkvg"} | {f"{x}_conv1d.weight": (p, 1, 4) for x in "qkv"}
        gates = {"f_a_proj.weight": (n, d), "f_b_proj.weight": (p, n), "b_proj.weight": (h, d), "A_log": (padded,), "dt_bias": (p,)}
        return projections | gates | {"o_norm.weight": (n,), "o_proj.weight": (d, p)}
    h, q, r = c["num_attention_heads"], c["q_lora_rank"], c["kv_lora_rank"]
    nope, rope, v = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    query = {"q_a_proj.weight": (q, d), "q_a_layernorm.weight": (q,), "q_b_proj.weight": (h * (nope + rope), q)}
    latent = {"kv_a_proj_with_mqa.weight": (r + rope, d), "kv_a_layernorm.weight": (r,), "kv_b_proj.weight": (h * (nope + v), r)}
    return query | latent | {"g_proj.weight": (h * v, d), "o_proj.weight": (d, h * v)}


def feed_forward(c, dense):
    """Names and shapes of one layer's feed-forward, from the layer's prefix on."""
    d, f, low, e = c["hidden_size"], c["moe_intermediate_size"], c["routed_expert_hidden_size"], c["num_experts"]
    gated = lambda at, width: {f"{at}.{x}_proj.weight": (width, d) for x in ("gate", "up")} | {f"{at}.down_proj.weight": (d, width)}
    if dense:
        return gated("mlp", c["intermediate_size"])
    at = "block_sparse_moe."
    out = {at + "gate.weight": (e, d), at + "gate.e_score_correction_bias": (e,), at + "routed_expert_norm.weight": (low,)}
    out |= {at + "routed_expert_down_proj.weight": (low, d), at + "routed_expert_up_proj.weight": (d, low)}
    out |= gated(at + "shared_experts", f * c["num_shared_experts"])
    for i in range(e):
        out |= {f"{at}experts.{i}.w{j}.weight": (low, f) if j == 2 else (f, low) for j in (1, 2, 3)}
    return out


def tensors(c, padded=4, residual=False, head=False):
    """Names and shapes of the whole checkpoint."""
    d, v, n = c["hidden_size"], c["vocab_size"], c["num_hidden_layers"]
    norm = lambda *names: {f"{x}.weight": (d,) for x in names}
    mix = lambda *names: norm(*(x + "_norm" for x in names)) | {f"{x}_proj.weight": (1, d) for x in names}
    out = {"model.embed_tokens.weight": (v, d), "model.norm.weight": (d,), "lm_head.weight": (v, d)}
    out |= {"model." + x: s for x, s in mix("output_attn_res").items()}
    for i in range(n + 1):
        kda = i + 1 in c["linear_attn_config"]["kda_layers"]
        layer = {"self_attn." + x: s for x, s in mixer(c, kda, padded).items()}
        layer |= feed_forward(c, i < c["first_k_dense_replace"]) | norm("input_layernorm", "post_attention_layernorm")
        if i < n or residual:
            layer |= mix("self_attention_res", "mlp_res")
        if i == n:
            layer |= norm("enorm", "hnorm", "shared_head.norm") | {"eh_proj.weight": (d, 2 * d)}
            layer |= {"shared_head.head.weight": (v, d), "embed_tokens.weight": (v, d)} if head else {}
        out |= {f"model.layers.{i}.{x}": s for x, s in layer.items()}
    return out


def drawn(shapes, generator, decay=(0.0, -1.0), common=0.0, mlp=1.0):
    """Weights of the usual sizes; decay = (mean of A_log, mean of dt_bias), common = a part shared by all embeddings."""
    normal = lambda shape: torch.randn(shape, generator=generator)
    out = {}
    for name, shape in shapes.items():
        if "norm" in name:
            x = 1 + 0.1 * normal(shape)
        elif "dt_bias" in name:
            x = decay[1] + normal(shape)
        elif "A_log" in name:
            x = decay[0] + 0.3 * normal(shape)
        elif "conv1d" in name:
            x = 0.5 * normal(shape)
        elif "e_score_correction_bias" in name:
            x = 0.1 * normal(shape)
        elif "embed_tokens" in name:
            x = normal(shape) + common * normal(shape[-1:])
        else:
            wide = name.endswith(("w1.weight", "w3.weight", "gate_proj.weight", "up_proj.weight")) and "routed_expert" not in name
            x = normal(shape) * shape[-1] ** -0.5 * (mlp if wide else 1.0)
        out[name] = x.bfloat16()
    return out


def save(folder, config, weights, nested=False, float32=False):
    """The checkpoint folder. `float32` stores what the published one keeps in float32 so."""
    folder.mkdir(parents=True, exist_ok=True)
    if nested:
        inner = config | {"model_type": "kimi_linear"}
        config = {"architectures": ["KimiK3ForConditionalGeneration"], "model_type": "kimi_k3", "text_config": inner}
        weights = {"language_model." + n: x for n, x in weights.items()}
    if float32:
        weights = {n: x.float() if n.endswith(STRICT) else x for n, x in weights.items()}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file({n: x.contiguous() for n, x in weights.items()}, folder / "model.safetensors", metadata={"format": "pt"})


def make(folder, seed, layers, mla, spell={}, draw={}, **changes):
    config = published(layers, mla, **changes)
    shape = {k: v for k, v in spell.items() if k in ("padded", "residual", "head")}
    how = {k: v for k, v in spell.items() if k in ("nested", "float32")}
    generator = torch.Generator().manual_seed(seed)
    save(folder, config, drawn(tensors(config, **shape), generator, **draw), **how)
    naming = "language_model" if spell.get("nested") else "published"
    record.write(folder, SOURCE, naming, record.prompts(Judge(folder), generator))


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
