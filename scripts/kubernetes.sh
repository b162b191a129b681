#!/usr/bin/env bash
# Builds the control plane of Kubernetes from its Go modules into .tools/kubernetes/, once: kube-apiserver, kube-controller-manager
# and kube-scheduler. It takes some minutes, and some GB. helm/tests/kubernetes/go.mod and go.sum pin its version and all that it is
# made of; Go comes as toolchains.sh brings it.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/toolchains.sh"
module=$root/helm/tests/kubernetes
folder=$root/.tools/kubernetes
stamp=$folder/control-plane.version
version=$(awk '$1 == "k8s.io/kubernetes" {print $2}' "$module/go.mod")

if [[ $(cat "$stamp" 2>/dev/null) == "$version" ]]; then
    exit 0
fi
bring_go >&2
mkdir -p "$folder"
IFS=. read -r major minor _ <<<"${version#v}"
stamped=k8s.io/component-base/version
echo "building Kubernetes $version: this takes some minutes" >&2
cd "$module"
for program in kube-apiserver kube-controller-manager kube-scheduler; do
    go build -trimpath -o "$folder/$program" \
        -ldflags "-s -w -X $stamped.gitVersion=$version -X $stamped.gitMajor=$major -X $stamped.gitMinor=$minor" "k8s.io/kubernetes/cmd/$program"
done
echo "$version" >"$stamp"
