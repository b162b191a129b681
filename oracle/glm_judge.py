"""The GLM-5.3-Flash text model by transformers (`models/glm5_next`), and its MTP layer.

The MTP layer is made of transformers' own modules, wired as vLLM's `glm5next/common/mtp.py` does it. With
`index_share_for_mtp_iteration` the second and later drafts read exactly the rows that the indexer chose at the prompt's last
position: no newer tail, not the draft's own line, and the indexer does not see their keys.
"""

import contextlib
import copy
import json

import torch
import transformers
from safetensors.torch import load_file
from torch.nn.functional import linear
from transformers.models.glm5_next import modeling_glm5_next as glm

OUTER = ("enorm", "hnorm", "eh_proj", "shared_head", "embed_tokens")


def configuration(folder):
    """The text configuration as transformers reads the folder."""
    raw = json.loads((folder / "config.json").read_text())
    kind = raw.pop("model_type")
    if kind == "glm5_next":
        return transformers.Glm5NextConfig(**raw).text_config
    return transformers.Glm5NextTextConfig(**raw)


def network(config, tensors, dtype, spare=None):
    """transformers' text model; every tensor must be used and none be missing but those whose name has `spare` in it."""
    config = copy.deepcopy(config)
    options = dict(attn_implementation="eager", experts_implementation="eager", dtype=dtype, output_loading_info=True)
    model, info = glm.Glm5NextTextModel.from_pretrained(None, config=config, state_dict=tensors, **options)
    wrong = [n for k, names in info.items() for n in names if not (k == "missing_keys" and spare and spare in n)]
    assert not wrong, wrong
    return model.eval()


class Draft:
    """The MTP layer: its block is layer N of a model with one layer more."""

    def __init__(self, config, tensors, lm_head):
        n = config.num_hidden_layers
        longer = copy.deepcopy(config)
        longer.num_hidden_layers = n + 1
        longer.layer_types, longer.mlp_layer_types = config.layer_types + ["indexed_attention"], config.mlp_layer_types + ["sparse"]
        longer.indexer_types = config.indexer_types + ["full"]
        at = f"layers.{n}."
        outer = {k.removeprefix(at): x.float() for k, x in tensors.items() if k.startswith(tuple(at + x for x in OUTER))}
        inner = {k: x for k, x in tensors.items() if not k.startswith(tuple(at + x for x in OUTER))}
        model = network(longer, inner, torch.float32, spare="_hc.")
        self.config, self.block = longer, model.layers[n]
        self.eh_proj = outer["eh_proj.weight"]
        self.norms = {}
        for name in ("enorm", "hnorm", "shared_head.norm"):
            self.norms[name] = glm.Glm5NextTextRMSNorm(config.hidden_size, config.rms_norm_eps)
            self.norms[name].weight.data = outer[name + ".weight"]
        self.embed = outer.get("embed_tokens.weight", model.embed_tokens.weight)
        self.head = outer.get("shared_head.head.weight", lm_head)
        self.shares = getattr(config, "index_share_for_mtp_iteration", False)

    def step(self, tokens, hidden, cache, first):
        e = self.embed[torch.tensor([tokens])].clone()
        if first:
            e[:, 0] = 0
        x = linear(torch.cat([self.norms["enorm"](e), self.norms["hnorm"](hidden)], -1), self.eh_proj)
        mask = torch.ones(x.shape[:2], dtype=torch.bool)
        y, _, _ = self.block.self_attn(self.block.input_layernorm(x), mask, cache=cache)
        x = x + y
        x = x + self.block.mlp(self.block.post_attention_layernorm(x))
        return self.norms["shared_head.norm"](x)[:, -1:]

    def chain(self, tokens, hidden):
        """Three drafts after a prompt whose ids are already shifted left by one."""
        cache, indexer, drafts, logits = transformers.DynamicCache(config=self.config), self.block.self_attn.indexer, [], []
        rows = []
        with contextlib.ExitStack() as stack:
            stack.callback(indexer.__dict__.pop, "forward", None)
            own = indexer.forward
            indexer.forward = lambda **x: rows.append(own(**x)) or rows[-1]
            for i in range(3):
                hidden = self.step(tokens, hidden, cache, i == 0)
                if self.shares:
                    indexer.forward = lambda **_: rows[0][:, -1:]
                logits.append(linear(hidden, self.head)[0, -1])
                tokens = [int(logits[-1].argmax())]
                drafts += tokens
        return drafts, logits


class Judge:
    def __init__(self, folder, tensors=None):
        """`tensors` replaces what the folder's file holds, by the same names."""
        config = configuration(folder)
        stored = tensors or load_file(folder / "model.safetensors")
        named = {n.replace("model.language_model.", "model.", 1).removeprefix("model."): x for n, x in stored.items()}
        lm_head = named.pop("lm_head.weight")
        own = {n: x for n, x in named.items() if not n.startswith(f"layers.{config.num_hidden_layers}.")}
        self.exact, self.low = network(config, own, torch.float32), network(config, own, torch.bfloat16)
        self.head, self.low_head = lm_head.float(), lm_head.bfloat16()
        self.draft = Draft(config, named, self.head)
        self.vocabulary, self.margin = config.vocab_size, float("inf")

    @torch.no_grad()
    def run(self, ids, cache=None):
        with noted() as gaps:
            out = self.exact(input_ids=torch.tensor([ids]), cache=cache, use_cache=cache is not None)
        self.margin = min([self.margin, *gaps])
        return out.last_hidden_state

    def logits(self, hidden):
        return linear(hidden, self.head)[0].numpy()

    def start(self, ids):
        cache = transformers.DynamicCache(config=self.exact.config)
        return cache, self.logits(self.run(ids, cache)[:, -1:])[0]

    def step(self, cache, token):
        return self.logits(self.run([token], cache))[0]

    def whole(self, ids):
        return self.logits(self.run(ids))

    @torch.no_grad()
    def rounded(self, ids):
        hidden = self.low(input_ids=torch.tensor([ids]), use_cache=False).last_hidden_state[:, -1:]
        return linear(hidden, self.low_head)[0, 0].float().numpy()

    def layers(self, ids):
        seen = []
        hooks = [x.register_forward_hook(lambda *a: seen.append(a[-1][0][0, -1])) for x in self.exact.layers]
        self.run(ids)
        for x in hooks:
            x.remove()
        return [x.numpy() for x in seen]

    @torch.no_grad()
    def drafts(self, ids, first):
        hidden = self.run(ids)
        with noted() as gaps:
            chain, logits = self.draft.chain(ids[1:] + [first], hidden)
        self.margin = min([self.margin, *gaps])
        return chain, [x.numpy() for x in logits]


@contextlib.contextmanager
def noted():
    """The gaps between the last chosen and the first unchosen: of experts (absolute), of pools (relative to the best score)."""
    gaps, topk, route = [], torch.Tensor.topk, glm.Glm5NextTextTopkRouter.forward
    index = glm.Glm5NextTextIndexer.forward

    def pools(scores, k, dim=-1):
        best = scores.sort(dim=-1, descending=True).values
        if best.shape[-1] > k:
            cut = (best[..., k - 1] - best[..., k]) / best[..., :1].abs().maximum(best[..., k - 1 : k].abs())[..., 0]
            real = best[..., k] > torch.finfo(best.dtype).min
            gaps.extend(cut[real].min()[None].tolist() if real.any() else [])
        return topk(scores, k, dim=dim)

    def indexed(self, *args, **more):
        torch.Tensor.topk = pools
        try:
            return index(self, *args, **more)
        finally:
            torch.Tensor.topk = topk

    def routed(self, hidden):
        out = route(self, hidden)
        best = (out[0].sigmoid() + self.e_score_correction_bias).sort(dim=-1, descending=True).values
        gaps.append(float((best[:, self.top_k - 1] - best[:, self.top_k]).min()))
        return out

    glm.Glm5NextTextTopkRouter.forward, glm.Glm5NextTextIndexer.forward = routed, indexed
    try:
        yield gaps
    finally:
        glm.Glm5NextTextTopkRouter.forward, glm.Glm5NextTextIndexer.forward = route, index
