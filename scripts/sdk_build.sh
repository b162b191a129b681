#!/usr/bin/env bash
# Checks the types of the Python and TypeScript SDKs, and builds the TypeScript and Go ones with their conformance runners and examples.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=$root/.tools/sdk/bin
export PATH=$bin:$PATH

cd "$root/sdk/python"
"$root/.venv/bin/mypy"

cd "$root/sdk/typescript"
node_modules/.bin/tsc --project tsconfig.build.json
node_modules/.bin/tsc --noEmit

cd "$root/sdk/go"
test -z "$("$(go env GOROOT)/bin/gofmt" -l .)" || { echo "go: run gofmt -w sdk/go" >&2; exit 1; }
go vet ./...
go build -o "$bin/conformance-go" ./internal/conformance
go build -o "$bin/generate-go" ./examples/generate
