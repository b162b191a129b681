#!/usr/bin/env bash
# A virtual environment from a pinned list: venv.sh FOLDER REQUIREMENTS
set -euo pipefail
folder=$1 requirements=$2
if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    apt-get update -qq && apt-get install -y -qq python3-venv python3-pip >/dev/null
fi
[ -x "$folder/bin/python" ] || "${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements"
touch "$folder/.ready"
