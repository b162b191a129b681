#!/usr/bin/env bash
# Builds kube-apiserver and kube-controller-manager 1.37.2 from their Go modules into .tools/kubernetes/, once; needs Go 1.26, some
# minutes and some GB. helm/tests/kubernetes/go.mod and go.sum pin what they are made of.
set -euo pipefail

version=v1.37.2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(dirname "$here")/.tools/kubernetes
stamp=$folder/kubernetes.version

if [[ $(cat "$stamp" 2>/dev/null) == "$version" ]]; then
    exit 0
fi
mkdir -p "$folder"
cd "$(dirname "$here")/helm/tests/kubernetes"
base=k8s.io/component-base/version
for program in kube-apiserver kube-controller-manager; do
    go build -trimpath -o "$folder/$program" \
        -ldflags "-s -w -X $base.gitVersion=$version -X $base.gitMajor=1 -X $base.gitMinor=37" "k8s.io/kubernetes/cmd/$program"
done
echo "$version" > "$stamp"
