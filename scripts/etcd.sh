#!/usr/bin/env bash
# Brings the pinned etcd server to .tools/etcd/ and prints its path. Tests run against it; nothing else needs it.
#
# It is Debian trixie's package, from the archive that this machine's apt has, unpacked and not installed.
# TANDEM_ETCD_BINARY=/path/to/etcd uses another (3.5 or newer); then nothing is fetched.
set -euo pipefail

version=3.5.16-4
package=etcd-server_${version}_amd64.deb
sha256=0875921bb0d023f2af9b8e15cdfbe417a03e65731345fb832c40f9c2dd72967b
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(dirname "$here")/.tools/etcd
etcd=$folder/$version/etcd

if [[ -n ${TANDEM_ETCD_BINARY:-} ]]; then
    [[ -x $TANDEM_ETCD_BINARY ]] || { echo "TANDEM_ETCD_BINARY: no program at $TANDEM_ETCD_BINARY" >&2; exit 1; }
    echo "$TANDEM_ETCD_BINARY"
    exit 0
fi
if [[ ! -x $etcd ]]; then
    mkdir -p "$folder"
    work=$(mktemp -d "$folder/fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep --max-count=1 '/debian/*$')
    # The digest is what it is trusted by: the archive's own signature does not matter here. Run as root, apt fetches as a user of
    # its own, who must reach the folder.
    chmod 755 "$work"
    /usr/lib/apt/apt-helper -o APT::Sandbox::User="$(id -un)" download-file \
        "${archive%/}/pool/main/e/etcd/$package" "$work/$package" "SHA256:$sha256" >&2
    dpkg-deb --extract "$work/$package" "$work/root"
    mkdir -p "$folder/$version"
    mv -f "$work/root/usr/bin/etcd" "$etcd"
fi
echo "$etcd"
