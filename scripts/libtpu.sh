#!/usr/bin/env bash
# Brings the pinned TPU compiler to .tools/libtpu/ and prints its path. It compiles for TPUs on a machine that has none.
#
# The wheel is fetched from its index and unzipped, never installed, and no Python runs with the library. Its licence is Google
# Cloud's terms of service: it is not ours to pass on, so it is never part of an image or of this repository.
# TANDEM_LIBTPU=/path/to/libtpu.so uses another one; then nothing is fetched.
set -euo pipefail

sha256=f86de4d04a058e6b5101f73e0824b95f27e2cec996d2b9191d9cffda75c03077
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(dirname "$here")/.tools/libtpu
library=$folder/libtpu.so

if [[ -n ${TANDEM_LIBTPU:-} ]]; then
    [[ -f $TANDEM_LIBTPU ]] || { echo "TANDEM_LIBTPU: no file at $TANDEM_LIBTPU" >&2; exit 1; }
    echo "$TANDEM_LIBTPU"
    exit 0
fi
# The stamp is written after the check, so hashing 467 MB is paid once and not at every make.
if [[ -f $library && $(cat "$library.sha256" 2>/dev/null) == "$sha256" ]]; then
    echo "$library"
    exit 0
fi

mkdir -p "$folder"
work=$(mktemp -d "$folder/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT

# One wheel for every machine, whatever its Python: the library does not link to Python.
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    --python-version 3.11 --implementation cp --abi cp311 --platform manylinux_2_31_x86_64 \
    --dest "$work" -r "$here/libtpu-requirements.txt"
python3 -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extract("libtpu/libtpu.so", sys.argv[2])' \
    "$work"/*.whl "$work"
echo "$sha256  $work/libtpu/libtpu.so" | sha256sum --check --quiet
mv -f "$work/libtpu/libtpu.so" "$library"
echo "$sha256" > "$work/stamp"
mv -f "$work/stamp" "$library.sha256"
echo "$library"
