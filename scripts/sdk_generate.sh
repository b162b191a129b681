#!/usr/bin/env bash
# Generates the SDKs' messages from the contracts: sdk_generate.sh. With --check it compares instead, and names what is not current.
# Needs what scripts/sdk_tools.sh brings. The Rust SDK's are generated when it is built.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PATH=$root/.tools/sdk/bin:$root/.venv/bin:$PATH
contracts=(--path "$root/proto/proto/tandem/v1/inference.proto" --path "$root/proto/proto/tandem/v1/sampling.proto"
    --path "$root/proto/proto/tandem/v1/errors.proto")

# generate SDK INPUT OUT PATHS...: what stands in the SDK's buf.gen.yaml, below OUT.
generate() {
    local sdk=$1 input=$2 out=$3
    shift 3
    (cd "$root/sdk/$sdk" && buf generate "$input" --output "$out" "$@")
}

all() {
    local out=$1 google
    # The statuses' details, as their own package carries them.
    google=$(python -c 'import google.rpc, pathlib; print(pathlib.Path(google.rpc.__path__[0]).parents[1])')
    for sdk in python typescript go; do
        generate "$sdk" "$root/proto/proto" "$out/$sdk" "${contracts[@]}"
    done
    generate typescript "$google" "$out/typescript" \
        --path "$google/google/rpc/status.proto" --path "$google/google/rpc/error_details.proto"
}

if [[ ${1:-} != --check ]]; then
    all "$root/sdk"
    exit 0
fi
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
all "$fresh"
cd "$root/sdk"
for folder in python/src/tandem/v1 typescript/src/generated go/tandem/v1; do
    diff --recursive --brief --exclude __pycache__ "$folder" "$fresh/$folder" || {
        echo "$folder is not what the contracts say; run: make sdk" >&2
        exit 1
    }
done
