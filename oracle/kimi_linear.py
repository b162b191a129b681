"""Tiny random Kimi-Linear checkpoints in the three spellings of their names, and transformers as their judge."""

import json

import torch
from safetensors.torch import save_file
from transformers import KimiLinearConfig, KimiLinearForCausalLM

import record

SOURCE = "transformers 5.24.0, torch 2.15.0, float32, CPU"
LENGTHS = [1, 2, 15, 16, 17, 63, 64, 65, 100, 200]

FIVE = ["kda"] * 3 + ["mla"] + ["kda"]
EIGHT = (["kda"] * 3 + ["mla"]) * 2
PAIRS = ["kda"] * 2 + ["kda", "mla"] * 3

# Per fixture: what differs from `published()`, the spelling of names on disk, and how fast the state decays.
FIXTURES = {
    "five-published": dict(seed=1, layers=FIVE, naming="published"),
    "five-saved": dict(seed=2, layers=FIVE, naming="saved", routed_scaling_factor=1.0),
    "five-module": dict(seed=3, layers=FIVE, naming="module", num_shared_experts=2, model_max_length=512),
    "folded": dict(seed=4, layers=EIGHT, hidden_size=32, first_k_dense_replace=0, eos_token_id=[2, 5]),
    "no-shared": dict(seed=5, layers=FIVE, hidden_size=32, num_shared_experts=0, num_experts_per_token=3, routed_scaling_factor=1.7),
    "wide-head": dict(seed=6, layers=["kda", "mla"], hidden_size=32, kda=(2, 128)),
    "strong-decay": dict(seed=7, layers=FIVE, hidden_size=32, decay=(1.5, 2.0)),
    "no-decay": dict(seed=8, layers=PAIRS, hidden_size=32, decay=(-3.0, -4.0), first_k_dense_replace=2),
    "query-rank": dict(seed=9, layers=["kda", "mla", "mla", "kda"], q_lora_rank=24, moe_renormalize=False, qk_rope_head_dim=4, v_head_dim=12),
}  # fmt: skip


def published(layers, kda=(4, 16), **changes):
    """config.json as the published checkpoints spell it."""
    numbered = lambda kind: [i + 1 for i, x in enumerate(layers) if x == kind]
    return {
        "architectures": ["KimiLinearForCausalLM"],
        "model_type": "kimi_linear",
        "dtype": "float32",
        "vocab_size": 80,
        "hidden_size": 48,
        "intermediate_size": 64,
        "moe_intermediate_size": 8,
        "num_hidden_layers": len(layers),
        "first_k_dense_replace": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "q_lora_rank": None,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "mla_use_nope": True,
        "num_experts": 8,
        "num_experts_per_token": 2,
        "num_shared_experts": 1,
        "moe_router_activation_func": "sigmoid",
        "moe_renormalize": True,
        "routed_scaling_factor": 2.446,
        "num_expert_group": 1,
        "topk_group": 1,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "model_max_length": 1024,
        "tie_word_embeddings": False,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "linear_attn_config": {
            "num_heads": kda[0],
            "head_dim": kda[1],
            "short_conv_kernel_size": 4,
            "kda_layers": numbered("kda"),
            "full_attn_layers": numbered("mla"),
        },
    } | changes


def randomise(model, decay, generator):
    """Weights of the usual sizes; decay = (mean of A_log, mean of dt_bias)."""
    normal = lambda shape: torch.randn(shape, generator=generator)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name:
                value = 1 + 0.1 * normal(p.shape)
            elif "dt_bias" in name:
                value = decay[1] + normal(p.shape)
            elif "A_log" in name:
                value = decay[0] + 0.3 * normal(p.shape)
            elif "conv1d" in name:
                value = 0.5 * normal(p.shape)
            else:
                value = normal(p.shape) * max(p.shape[-1], 1) ** -0.5
            p.copy_(value.bfloat16())
        for name, b in model.named_buffers():
            if "e_score_correction_bias" in name:
                b.copy_((0.1 * normal(b.shape)).bfloat16())


def on_disk(config, state, naming):
    """Tensors under the names of the spelling asked for, from the names of the module."""
    if naming == "module":
        return state
    out, k = {}, config["linear_attn_config"]["head_dim"] * config["linear_attn_config"]["num_heads"]
    f = config["moe_intermediate_size"]
    for name, x in state.items():
        name = name.replace("forget_gate.", "")
        dense = name.startswith(tuple(f"model.layers.{i}.mlp." for i in range(config["first_k_dense_replace"])))
        if naming == "saved" or not dense:
            name = name.replace(".mlp.", ".block_sparse_moe.")
        if name.endswith(".conv1d.weight"):
            out |= {name.replace("conv1d", f"{q}_conv1d"): x[i * k : (i + 1) * k] for i, q in enumerate("qkv")}
        elif name.endswith("experts.gate_up_proj"):
            at = name.removesuffix("gate_up_proj")
            for e in range(len(x)):
                out |= {f"{at}{e}.w1.weight": x[e, :f], f"{at}{e}.w3.weight": x[e, f:]}
        elif name.endswith("experts.down_proj") and x.ndim == 3:
            out |= {f"{name.removesuffix('down_proj')}{e}.w2.weight": x[e] for e in range(len(x))}
        elif x.numel():
            out[name] = x
    return out


def write(folder, config, model, naming):
    folder.mkdir(parents=True, exist_ok=True)
    if naming == "published":
        text = json.dumps(config, indent=1)
    else:
        model.config.save_pretrained(folder)
        text = json.dumps(json.loads((folder / "config.json").read_text()) | {"architectures": config["architectures"]}, indent=1)
    (folder / "config.json").write_text(text + "\n")
    tensors = on_disk(config, {n: x.detach() for n, x in model.state_dict().items()}, naming)
    save_file({n: x.bfloat16().contiguous() for n, x in tensors.items()}, folder / "model.safetensors", metadata={"format": "pt"})


class Judge:
    margin = float("inf")

    def __init__(self, folder):
        load = lambda dtype: KimiLinearForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
        self.exact, self.low = load(torch.float32), load(torch.bfloat16)
        self.vocabulary = self.exact.config.vocab_size

    @torch.no_grad()
    def start(self, ids):
        out = self.exact(input_ids=torch.tensor([ids]), use_cache=True)
        return out.cache, out.logits[0, -1].numpy()

    @torch.no_grad()
    def step(self, cache, token):
        return self.exact(input_ids=torch.tensor([[token]]), cache=cache, use_cache=True).logits[0, -1].numpy()

    @torch.no_grad()
    def whole(self, ids):
        return self.exact(input_ids=torch.tensor([ids]), use_cache=False).logits[0].numpy()

    @torch.no_grad()
    def rounded(self, ids):
        return self.low(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].float().numpy()


def make(folder, seed, layers, naming="published", decay=(0.0, -2.0), **changes):
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    config = published(layers, **changes)
    model = KimiLinearForCausalLM(KimiLinearConfig(**config, attn_implementation="eager")).float().eval()
    randomise(model, decay, generator)
    write(folder, config, model, naming)
    judge = Judge(folder)
    same = {n: torch.equal(x, judge.exact.state_dict()[n]) for n, x in model.state_dict().items()}
    assert all(same.values()), [n for n, ok in same.items() if not ok]
    record.write(folder, SOURCE, naming, record.prompts(judge, generator, LENGTHS, (), ()))
