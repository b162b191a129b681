#!/usr/bin/env bash
# kvxfer beside a raw tokio copy, NIXL and Mooncake on loopback: bench_kvxfer.sh [flags of bench_kvxfer.py]
# KVXFER_PEERS names a folder that has the peers' environments, nixl and mooncake, already. As root, everything runs in one
# network namespace with reno; else on the host's loopback with its congestion control, and the output says so.
set -euo pipefail
cd "$(dirname "$0")/.."
peers=${KVXFER_PEERS:-.tools/kvxfer-peers}
if [ -z "${KVXFER_PEERS:-}" ]; then
    mkdir -p "$peers"
    # the wheel runs without what it asks for, torch above all
    [ -e "$peers/nixl/.ready" ] || PIP_NO_DEPS=1 scripts/venv.sh "$peers/nixl" scripts/bench-nixl-requirements.txt
    [ -e "$peers/mooncake/.ready" ] || scripts/venv.sh "$peers/mooncake" scripts/bench-mooncake-requirements.txt
    # Mooncake links to it, with or without such a device
    ldconfig -p | grep -q libibverbs.so.1 || apt-get install -y -qq libibverbs1 >/dev/null
fi
bench=$(${CARGO:-cargo} bench --no-run -p tandem-kvxfer --bench transfer 2>&1 | sed -n 's/.*(\(.*transfer-[0-9a-f]*\)).*/\1/p')
inside=()
if [ "$(id -u)" = 0 ] && ip netns add kvxfer-bench 2>/dev/null; then
    trap 'ip netns del kvxfer-bench' EXIT
    inside=(ip netns exec kvxfer-bench)
    "${inside[@]}" ip link set lo up
    "${inside[@]}" sysctl -qw net.ipv4.tcp_congestion_control=reno
fi
"${inside[@]}" python3 scripts/bench_kvxfer.py --bench "$bench" --peers "$peers" "$@"
