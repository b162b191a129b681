"""Tiny checkpoints in the two quantised formats: MXFP4 written by compressed-tensors, FP8 by transformers.

The judges read the weights that the stored ones stand for, in float32.
"""

import pathlib
import tempfile
from types import SimpleNamespace

import torch
from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
from compressed_tensors.quantization import QuantizationConfig, QuantizationScheme
from compressed_tensors.quantization.quant_scheme import preset_name_to_scheme
from compressed_tensors.quantization.utils.helpers import calculate_qparams
from torch.nn.functional import pad
from transformers import FineGrainedFP8Config
from transformers.integrations.finegrained_fp8 import Fp8Quantize

import checkpoint
import glm
import glm_judge
import k3
import k3_judge
import record

K3 = dict(layers=6, mla=[4, 6], kda=(2, 16), routed_expert_hidden_size=64, moe_intermediate_size=32, num_experts=5)
GLM = dict(layers=4, dsa=[1, 3], dense=1, hidden_size=136, v_head_dim=68, q_lora_rank=72, kv_lora_rank=40, n_routed_experts=3, index_head_dim=8)
FIXTURES = {"k3-mxfp4": dict(seed=51, format="mxfp4"), "glm-fp8": dict(seed=52, format="fp8")}
BLOCK = 128


def mxfp4(weights, config):
    """Routed experts packed by compressed-tensors: (what is stored, what it stands for, quantization_config)."""
    scheme = preset_name_to_scheme("MXFP4A16", ["re:.*block_sparse_moe.experts.*"])
    scheme.format = "mxfp4-pack-quantized"
    stored, meant = {}, {}
    for name, x in weights.items():
        if ".experts." not in name:
            stored[name] = meant[name] = x
            continue
        groups = x.unflatten(-1, (-1, 32))
        scale, _ = calculate_qparams(groups.amin(-1), groups.amax(-1), scheme.weights)
        packed = MXFP4PackedCompressor.compress({"weight": x, "weight_scale": scale}, scheme)
        stored |= {f"{name.removesuffix('weight')}{k}": v for k, v in packed.items()}
        meant[name] = MXFP4PackedCompressor.decompress(packed, scheme)["weight"].bfloat16()
        assert torch.equal(meant[name], unpacked(packed["weight_packed"], packed["weight_scale"]).bfloat16())
    options = QuantizationConfig(config_groups={"group_0": scheme}, format=scheme.format, quantization_status="compressed")
    options.ignore = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp.*", "re:.*routed_expert_(up|down)_proj.*"]
    return stored, meant, options.model_dump(mode="json", exclude_none=True)


def unpacked(packed, scale):
    """The format by itself: low nibble first, e2m1 with a sign bit, times two to the (scale - 127) per 32 columns."""
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    table = torch.cat([table, -table])
    values = table[torch.stack([packed & 15, packed >> 4], -1).flatten(-2).long()]
    return values * (scale.float() - 127).exp2().repeat_interleave(32, -1)


def fp8(weights, config):
    """Blocks of 128 x 128 by transformers. It leaves ragged matrices alone, so those are padded with zeros and cut again."""
    options = FineGrainedFP8Config(weight_block_size=(BLOCK, BLOCK), activation_scheme="dynamic")
    write = Fp8Quantize(SimpleNamespace(quantization_config=options))
    ends = tuple(f"self_attn.{x}.weight" for x in ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa"))
    full = [f"model.layers.{i}." for i, x in enumerate(config["layer_types"]) if x != "linear_attention"]
    outputs = [x + "self_attn.o_proj.weight" for x in (*full, f"model.layers.{config['num_hidden_layers']}.")]
    stored, meant = {}, {}
    for name, x in weights.items():
        if not (name.endswith(ends) or name in outputs or ".mlp.experts." in name):
            stored[name], meant[name] = x, x
            continue
        rows, columns = x.shape
        out = write.convert({name: pad(x, (0, -columns % BLOCK, 0, -rows % BLOCK))})
        scale = out[name + "_scale_inv"]
        stored |= {name: out[name][:rows, :columns].contiguous(), name + "_scale_inv": scale}
        wide = scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)[:rows, :columns]
        meant[name] = stored[name].float() * wide
    raw = options.to_dict()
    kept = (n for n, x in stored.items() if x.ndim == 2 and n.endswith(".weight") and n + "_scale_inv" not in stored)
    raw["modules_to_not_convert"] = [n.removesuffix(".weight") for n in kept if "embed_tokens" not in n]
    return stored, meant, raw


def make(folder, seed, format):
    generator = torch.Generator().manual_seed(seed)
    family, judge, quantise = (k3, k3_judge, mxfp4) if format == "mxfp4" else (glm, glm_judge, fp8)
    config = k3.published(**K3) if format == "mxfp4" else glm.flat(**GLM)
    weights = checkpoint.drawn(family.tensors(config), generator)
    stored, meant, options = quantise(weights, config)
    checkpoint.save(folder, config | {"quantization_config": options}, stored)
    with tempfile.TemporaryDirectory() as plain:
        checkpoint.save(pathlib.Path(plain), config, meant)
        record.write(folder, family.SOURCE, format, record.prompts(judge.Judge(pathlib.Path(plain)), generator))
