"""Step times beside JAX, what drafts bring, and what the router costs, in one run on this machine.

    bench.py [MODEL...] [--rounds N] [--json]

Each round times the engine without drafts, JAX, and the engine as it is served, so that all see the same neighbours; a
figure is the median of the rounds, a ratio that of two medians. The router's cost is its process' CPU time under two loads
that differ only in tokens a request.
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
DEMOS = [pathlib.Path("models/k3-demo"), pathlib.Path("models/glm-demo")]


def answer(*command):
    done = subprocess.run([str(part) for part in command], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def engine(model, *flags):
    return answer(TANDEM, "bench", "--steps", "--model-dir", model, "--json", *flags)


def measured(model, rounds):
    """What the rounds printed: the engine's reports without drafts, JAX's, and the engine's with its default drafts."""
    off, jax, on = [], [], []
    for _ in range(rounds):
        off.append(engine(model, "--drafts", 0))
        batches = ",".join(off[0]["decode_step_seconds"])
        chunk = off[0]["prefill_chunk_tokens"]
        jax.append(answer(sys.executable, ROOT / "oracle/jax_bench.py", model, "--batches", batches, "--chunk", chunk))
        on.append(engine(model))
    return {"without_drafts": off, "jax": jax, "with_drafts": on}


def median(reports, figure):
    return statistics.median(figure(report) for report in reports)


def steps(rounds):
    """Rows {name, unit, tandem, jax, speedup}: decode steps in ms by batch, prefill in tokens a second."""
    off, jax = rounds["without_drafts"], rounds["jax"]
    rows = []
    for batch in off[0]["decode_step_seconds"]:
        ours, theirs = (median(reports, lambda r: r["decode_step_seconds"][batch] * 1e3) for reports in (off, jax))
        name = f"decode step, batch {batch}"
        rows.append({"name": name, "unit": "ms", "tandem": ours, "jax": theirs, "speedup": theirs / ours})
    ours, theirs = (median(reports, lambda r: r["prefill_tokens_per_second"]) for reports in (off, jax))
    name = f"prefill, chunk of {off[0]['prefill_chunk_tokens']}"
    rows.append({"name": name, "unit": "tokens/s", "tandem": ours, "jax": theirs, "speedup": ours / theirs})
    return rows


def drafts(rounds):
    """Rows {name, tokens_per_step, off, on, speedup}: all sequences' tokens a second by batch; none where nothing drafts."""
    off, on = rounds["without_drafts"], rounds["with_drafts"]
    if on[0]["drafts"] == 0:
        return []
    rows = []
    for batch in off[0]["decode_step_seconds"]:
        tokens = lambda r: r["decode_step_tokens"][batch]
        speed = lambda r: int(batch) * tokens(r) / r["decode_step_seconds"][batch]
        row = {"name": f"decode, batch {batch}", "tokens_per_step": median(on, tokens)}
        row |= {"off": median(off, speed), "on": median(on, speed)}
        rows.append(row | {"speedup": row["on"] / row["off"]})
    return rows


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
                )  # fmt: skip
                assert report["failed"] == 0, report["failures"]
                cost[tokens] = (cpu_seconds(state["router"]["pid"]) - before) / 200 * 1e6
            token = (cost[130] - cost[2]) / 128
            return {"us_per_request": cost[2] - 2 * token, "us_per_token": token}
        finally:
            up.terminate()
            up.wait()


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def table(report):
    print(report["machine"])
    for name, model in report["models"].items():
        print(f"\n{name:<26}{'tandem':>12}{'JAX':>12}   {'':<10}{'JAX / tandem, by time':>22}")
        for row in model["steps"]:
            figures = f"{row['tandem']:>12.3f}{row['jax']:>12.3f}   {row['unit']:<10}{row['speedup']:>22.2f}"
            print(f"{row['name']:<26}{figures}")
        if model["drafts"]:
            print(f"{'':<26}{'drafts off':>12}{'drafts on':>12}   {'':<10}{'on / off':>22}")
        for row in model["drafts"]:
            figures = f"{row['off']:>12.1f}{row['on']:>12.1f}   {'tokens/s':<10}{row['speedup']:>22.2f}"
            print(f"{row['name']:<26}{figures}   {row['tokens_per_step']:.2f} tokens a step")
    cost = report["router"]
    print(f"\nrouter: {cost['us_per_request']:.0f} us of CPU a request, {cost['us_per_token']:.1f} us a relayed token")


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("models", nargs="*", type=pathlib.Path, metavar="MODEL", help="folders [default: both demos]")
    flags.add_argument("--rounds", type=int, default=3)
    flags.add_argument("--json", action="store_true", help="print every round's figures too, as JSON")
    flags = flags.parse_args()
    models = flags.models or DEMOS
    machine = f"{os.cpu_count()} x {cpu_name()}, {platform.system()} {platform.release()}"
    report = {"machine": machine, "load_before": os.getloadavg()[0], "models": {}}
    for model in models:
        rounds = measured(model, flags.rounds)
        report["models"][model.name] = {"steps": steps(rounds), "drafts": drafts(rounds), "rounds": rounds}
    report["router"] = router(models[0])
    if flags.json:
        json.dump(report, sys.stdout, indent=1)
    else:
        table(report)


if __name__ == "__main__":
    main()
