"""Step times beside JAX, and what the router costs, in one run on this machine.

    bench.py MODEL [--rounds N] [--json]

Engine and JAX take turns, round by round, so that both see the same neighbours; a ratio is the median of the rounds' own
ratios. The router's cost is its process' CPU time under two loads that differ only in tokens a request.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
TANDEM = ROOT / "target/release/tandem"
BATCHES = (2, 4, 8, 16)


def answer(*command):
    done = subprocess.run([str(part) for part in command], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def steps(model, rounds, jax):
    """Medians over rounds: seconds a decode step by batch, prefill tokens a second, and the ratios to JAX."""
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(answer(TANDEM, "bench", "--steps", "--model-dir", model, "--json"))
        theirs.append(answer(jax, ROOT / "oracle/jax_bench.py", model))
    rows = []
    for batch in map(str, BATCHES):
        mine = [one["decode_step_seconds"][batch] for one in ours]
        other = [one["decode_step_seconds"][batch] for one in theirs]
        rows.append((f"decode step, batch {batch}", "ms", *compare(mine, other, 1e3, lower_is_better=True)))
    mine = [one["prefill_tokens_per_second"] for one in ours]
    other = [one["prefill_tokens_per_second"] for one in theirs]
    rows.append(("prefill, chunk of 256", "tokens/s", *compare(mine, other, 1, lower_is_better=False)))
    return rows


def compare(ours, theirs, scale, lower_is_better):
    speedups = [t / o if lower_is_better else o / t for o, t in zip(ours, theirs)]
    return statistics.median(ours) * scale, statistics.median(theirs) * scale, statistics.median(speedups)


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def router(model):
    """CPU microseconds of the router a request, and a relayed token."""
    with tempfile.TemporaryDirectory() as folder:
        state_file = pathlib.Path(folder, "state.json")
        command = [TANDEM, "up", "--model", model, "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--state", state_file]
        up = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not state_file.exists():
                assert up.poll() is None, "tandem up ended"
                time.sleep(0.05)
            state = json.loads(state_file.read_text())
            cost = {}
            for tokens in (2, 130):
                before = cpu_seconds(state["router"]["pid"])
                report = answer(
                    TANDEM, "bench", "--url", state["router"]["grpc"], "--requests", 200, "--concurrency", 8,
                    "--prompt-tokens", 16, "--max-tokens", tokens, "--json",
                )
                assert report["failed"] == 0, report["failures"]
                cost[tokens] = (cpu_seconds(state["router"]["pid"]) - before) / 200 * 1e6
            token = (cost[130] - cost[2]) / 128
            return cost[2] - 2 * token, token
        finally:
            up.terminate()
            up.wait()


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("model", type=pathlib.Path)
    flags.add_argument("--rounds", type=int, default=5)
    flags.add_argument("--jax", default=ROOT / ".venv-jax/bin/python", help="Python with oracle/requirements-jax.txt")
    flags.add_argument("--json", action="store_true")
    flags = flags.parse_args()
    rows = steps(flags.model, flags.rounds, flags.jax)
    request, token = router(flags.model)
    if flags.json:
        json.dump({"steps": rows, "router_us_per_request": request, "router_us_per_token": token}, sys.stdout)
        return
    print(f"{os.cpu_count()} x {cpu_name()}, {platform.system()} {platform.release()}")
    print(f"{'':<26}{'tandem':>12}{'JAX':>12}   {'':<10}{'JAX / tandem, by time':>22}")
    for name, unit, mine, other, speedup in rows:
        print(f"{name:<26}{mine:>12.3f}{other:>12.3f}   {unit:<10}{speedup:>22.2f}")
    print(f"router: {request:.0f} us of CPU a request, {token:.1f} us a relayed token")


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
