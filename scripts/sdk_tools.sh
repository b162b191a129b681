#!/usr/bin/env bash
# Brings what builds and generates the SDKs: Node.js and Go as toolchains.sh does, the Python tools to .venv, and the TypeScript
# SDK's packages. All are pinned.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/toolchains.sh"
cd "$root"
bring_node
bring_go

# All three mostly wait for the network.
scripts/venv.sh .venv sdk/conformance/requirements.txt &
python=$!
(cd sdk/go && go mod download) &
go=$!
(cd sdk/typescript && npm ci --loglevel=error --no-audit --no-fund --ignore-scripts)
wait "$python"
wait "$go"
touch "$tools/.ready" .venv/.sdk-ready
