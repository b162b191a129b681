"""Random weights for a list of tensor names, and the Hugging Face folder they are stored in."""

import json

import torch
from safetensors.torch import save_file

WIDE = ("w1.weight", "w3.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight", "_experts.gate_proj.weight", "_experts.up_proj.weight")


def drawn(shapes, generator, decay=(0.0, -1.0), common=0.0, mlp=1.0):
    """Bfloat16 weights of the usual sizes, in the order of `shapes` (name -> shape).

    decay = (mean of A_log, mean of dt_bias); common = size of a part shared by all embeddings, which correlates the keys;
    mlp = a factor on what goes into the gated activations.
    """
    normal = lambda shape: torch.randn(shape, generator=generator)
    out = {}
    for name, shape in shapes.items():
        if name.endswith("k_norm.bias") or "e_score_correction_bias" in name:
            x = 0.1 * normal(shape)
        elif "norm" in name:
            x = 1 + 0.1 * normal(shape)
        elif "dt_bias" in name:
            x = decay[1] + normal(shape)
        elif "A_log" in name:
            x = decay[0] + 0.3 * normal(shape)
        elif "conv1d" in name or name.endswith(("_base", "compress_ape")):
            x = 0.5 * normal(shape)
        elif name.endswith("_scale"):
            x = 1 + 0.25 * normal(shape)
        elif "embed_tokens" in name:
            x = normal(shape) + common * normal(shape[-1:])
        else:
            wide = name.endswith(WIDE) or (".experts." in name and not name.endswith(("w2.weight", "down_proj.weight")))
            x = normal(shape) * shape[-1] ** -0.5 * (mlp if wide else 1.0)
        out[name] = x.bfloat16()
    return out


def save(folder, config, weights):
    """config.json and model.safetensors, readable by all."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file({n: x.contiguous() for n, x in weights.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
