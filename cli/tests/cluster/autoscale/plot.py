"""Queue, rooms, replicas and TTFT over time, as an SVG; `python -m autoscale.plot RUN.json OUT.svg` draws a run that was kept."""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tandem", "font.size": 9, "axes.grid": True, "grid.alpha": 0.25})
from matplotlib import pyplot  # noqa: E402

from .loops import TRIGGERS  # noqa: E402
from .run import Run  # noqa: E402

COLOURS = {"prefill": "#1f77b4", "decode": "#d95f02"}


def changes(seen: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Only where something else begins, and the end."""
    return [now for before, now in zip([None, *seen], seen) if before is None or before[1] != now[1]] + [seen[-1]]


def draw(run: Run, path: pathlib.Path, slots: int):
    figure, axes = pyplot.subplots(5, 1, figsize=(10, 11), sharex=True, layout="constrained")
    at = [sample.at for sample in run.samples]
    waiting, rooms, prefill, decode, ttft = axes
    waiting.plot(at, [sample.waiting for sample in run.samples], color=COLOURS["prefill"], linewidth=0.8)
    waiting.axhline(float(TRIGGERS["prefill"]["waitSeconds"]), color="grey", linestyle=":", linewidth=0.8)
    waiting.set_ylabel("prefill: work waiting, s")
    rooms.plot(at, [sample.rooms for sample in run.samples], color=COLOURS["decode"], linewidth=0.8)
    rooms.axhline(slots * float(TRIGGERS["decode"]["rooms"]), color="grey", linestyle=":", linewidth=0.8)
    rooms.set_ylabel("decode: rooms")
    for role, axis in (("prefill", prefill), ("decode", decode)):
        wanted = changes([(sample.at, sample.wanted[role]) for sample in run.samples])
        ready = changes([(sample.at, sample.ready[role]) for sample in run.samples])
        axis.step(*zip(*wanted), where="post", color=COLOURS[role], label="wanted")
        axis.fill_between(*zip(*ready), step="post", alpha=0.3, color=COLOURS[role], label="ready")
        axis.set_ylabel(f"{role} replicas")
        axis.legend(loc="upper left", fontsize=8)
    heard = [answer for answer in run.answers if answer.ttft is not None]
    ttft.plot([answer.at for answer in heard], [answer.ttft for answer in heard], ".", markersize=3, color="#333333")
    ttft.set_yscale("log")
    ttft.set_ylabel("TTFT, s")
    ttft.set_xlabel("seconds; dotted: a worker's target")
    for axis in axes:
        for number, (_, begin, end) in enumerate(run.spans()):
            axis.axvspan(begin, end, color="black", alpha=0.05 if number % 2 else 0, linewidth=0)
        axis.set_xlim(0, run.spans()[-1][2])
    for stretch, begin, end in run.spans():
        waiting.text((begin + end) / 2, 1.02, stretch.name, transform=waiting.get_xaxis_transform(), ha="center")
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    draw(Run.of(json.loads(pathlib.Path(sys.argv[1]).read_text())), pathlib.Path(sys.argv[2]), 16)
