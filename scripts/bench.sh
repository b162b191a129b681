#!/usr/bin/env bash
# Step times beside JAX, and the router's overhead: bench.sh MODEL [flags of bench.py]
set -euo pipefail
cd "$(dirname "$0")/.."
[ -e .venv-jax/.ready ] || PYTHON=python3.12 scripts/venv.sh .venv-jax oracle/requirements-jax.txt
exec .venv-jax/bin/python scripts/bench.py "$@"
