#!/usr/bin/env bash
# Step times beside JAX, drafts on and off, and the router's overhead: bench.sh [MODEL...] [flags of bench.py]
# JAX_PYTHON names a Python that has oracle/requirements-jax.txt already.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${JAX_PYTHON:-.venv-jax/bin/python}
if [ -z "${JAX_PYTHON:-}" ] && [ ! -e .venv-jax/.ready ]; then
    PYTHON=python3.12 scripts/venv.sh .venv-jax oracle/requirements-jax.txt
fi
exec "$python" scripts/bench.py "$@"
