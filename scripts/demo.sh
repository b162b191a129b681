#!/usr/bin/env bash
# One prompt through a whole local cluster: demo.sh MODEL
set -euo pipefail
cd "$(dirname "$0")/.."
model=$1
tandem=target/release/tandem
run=$(mktemp -d)
trap 'kill "$up" 2>/dev/null && wait "$up" 2>/dev/null; rm -rf "$run"' EXIT

"$tandem" up --model "$model" --prefill 1 --decode 1 --grpc 127.0.0.1:0 --http 127.0.0.1:0 --state "$run/state.json" &
up=$!
until [ -s "$run/state.json" ]; do
    kill -0 "$up" 2>/dev/null || { wait "$up"; exit 1; }
    sleep 0.1
done
grpc=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["router"]["grpc"])' "$run/state.json")
echo
"$tandem" generate --url "$grpc" --max-tokens 160 --temperature 0.7 --seed 7 "$(cat scripts/demo-prompt.txt)"
echo
