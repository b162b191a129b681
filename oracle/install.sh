#!/bin/sh
# Builds the two environments: install.sh TORCH_VENV JAX_VENV
# PYTHON311 and PYTHON312 name the interpreters when they are not on the path under those names.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
torch_venv=$1
jax_venv=$2

"${PYTHON312:-python3.12}" -m venv "$jax_venv"
"$jax_venv/bin/pip" install --quiet -r "$here/requirements-jax.txt"

"${PYTHON311:-python3.11}" -m venv "$torch_venv"
"$torch_venv/bin/pip" install --quiet -r "$here/requirements.txt"
"$torch_venv/bin/pip" install --quiet --no-deps -r "$here/requirements-torch.txt"
libraries=$("$torch_venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/torch/lib
"$torch_venv/bin/python" "$here/cuda_stubs.py" "$libraries"
"$torch_venv/bin/python" -c 'import torch; from mlx_lm.models import kimi_k3; from transformers import KimiLinearForCausalLM; print("torch", torch.__version__)'
"$jax_venv/bin/python" -c 'import jax; print("jax", jax.__version__)'
