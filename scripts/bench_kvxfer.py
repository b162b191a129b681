"""GB/s and CPU seconds per GB (both ends) of kvxfer, a raw tokio copy, NIXL and Mooncake, in one interleaved run.

Over TCP, and of kvxfer and NIXL also between processes of one host as each of them likes it best.
"""

import argparse
import atexit
import contextlib
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys

# (bytes, cut, transfers a trial)
TRIALS = [
    (64 << 10, "whole", 300),
    (1 << 20, "whole", 100),
    (64 << 20, "whole", 6),
    (64 << 20, "pages", 6),
    (1 << 30, "whole", 1),
]
RATIOS = [("kvxfer", "tokio"), ("kvxfer", "nixl"), ("kvxfer", "mooncake"), ("kvxfer host", "nixl cma")]


class Engine:
    """A process that answers trials, with all that it starts. It is stopped while it is nobody's turn but another's: threads
    that poll would take a core from whoever is measured."""

    def __init__(self, name, command, log):
        self.name = name
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, process_group=0
        )
        # a stopped process would outlive this one
        atexit.register(self.end)

    def answer(self):
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise EOFError(f"{self.name} has ended")
            if line.startswith("{"):
                return json.loads(line)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def stop(self):
        os.killpg(self.process.pid, signal.SIGSTOP)

    def trial(self, engine, count, cut, transfers):
        """Of a tenth as many transfers first, unmeasured: a stopped process finds its caches and its core's clock cold."""
        os.killpg(self.process.pid, signal.SIGCONT)
        try:
            self.ask(f"{engine}{count} {cut} {max(1, transfers // 10)}")
            return self.ask(f"{engine}{count} {cut} {transfers}")
        finally:
            self.stop()


def prefer():
    """A share of the machine that other work does not halve, where that may be asked for."""
    try:
        pathlib.Path("/proc/self/autogroup").write_text("-20")
        return "ahead of other work"
    except OSError:
        return "beside other work"


def size(count):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count // unit} {name}"
    return str(count)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--bench", required=True)
    arguments.add_argument("--peers", type=pathlib.Path, required=True)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--without-peers", action="store_true")
    given = arguments.parse_args()
    control = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    share = prefer()
    print(f"loopback, {control}, {given.rounds} rounds, {share}; median (best)", flush=True)

    log = subprocess.DEVNULL
    rust = Engine("kvxfer", [given.bench], log)
    digest = rust.ask("digest 0 whole 0")["cpu_per_gb"]
    rust.stop()
    engines = {"kvxfer": (rust, "ours "), "tokio": (rust, "raw "), "kvxfer host": (rust, "host ")}
    if not given.without_peers:
        here = pathlib.Path(__file__).parent / "bench_kvxfer_peer.py"
        for name in ("nixl", "mooncake", "nixl cma"):
            python = given.peers / name.split()[0] / "bin/python"
            peer = Engine(name, [str(python), str(here), name.replace(" ", "-")], log)
            peer.answer()
            peer.stop()
            engines[name] = (peer, "")

    took = {}
    # the round before the first warms everybody's memory and connections up
    for round_ in range(-1, given.rounds):
        for count, cut, transfers in TRIALS:
            for name, (process, engine) in engines.items():
                answer = process.trial(engine, count, cut, transfers)
                if round_ >= 0:
                    took.setdefault((count, cut), {}).setdefault(name, []).append(answer)
    report(took, list(engines), digest)


def report(took, names, digest):
    print(f"{'':18}" + "".join(f"{name:>16}" for name in names) + "   kvxfer / tokio, nixl, mooncake; host / cma: by round, median")
    for (count, cut), by_name in took.items():
        label = size(count) + (" as pages" if cut == "pages" else "")
        rates = {name: [trial["gb_per_s"] for trial in trials] for name, trials in by_name.items()}
        cells = [f"{statistics.median(rate):.2f} ({max(rate):.2f})" for rate in rates.values()]
        ratios = [
            f"{statistics.median(ours / theirs for ours, theirs in zip(rates[one], rates[other])):.2f}"
            for one, other in RATIOS
            if other in rates
        ]
        print(f"{label:12}{'GB/s':>6}" + "".join(f"{cell:>16}" for cell in cells) + "   " + " ".join(ratios))
        cpu = [statistics.median(trial["cpu_per_gb"] for trial in trials) for trials in by_name.values()]
        print(f"{'':10}{'CPU-s/GB':>8}" + "".join(f"{cell:>16.2f}" for cell in cpu))
        p50 = [statistics.median(trial["p50_us"] for trial in trials) for trials in by_name.values()]
        print(f"{'':10}{'p50 us':>8}" + "".join(f"{cell:>16.0f}" for cell in p50))
    print(f"digest of a block in cache: {digest:.3f} CPU-s/GB a side")


if __name__ == "__main__":
    sys.exit(main())
