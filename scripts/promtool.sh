#!/usr/bin/env bash
# Prints the path of promtool: the one that is installed, or Debian's, unpacked into .tools/prometheus/ and not installed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(dirname "$here")/.tools/prometheus

if command -v promtool; then
    exit 0
fi
if [[ ! -x $folder/usr/bin/promtool ]]; then
    mkdir -p "$folder"
    work=$(mktemp -d "$folder/fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    # The package is checked against apt's signed index.
    (cd "$work" && { apt-get download -qq prometheus || { apt-get update -qq && apt-get download -qq prometheus; }; }) >&2
    dpkg-deb --extract "$work"/prometheus_*.deb "$work/root"
    mkdir -p "$folder/usr/bin"
    mv -f "$work/root/usr/bin/promtool" "$folder/usr/bin/promtool"
fi
echo "$folder/usr/bin/promtool"
