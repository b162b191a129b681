"""What is played when: the trace at several speeds, nothing, and a constant load."""

import csv
import dataclasses
import pathlib

TRACE = pathlib.Path(__file__).resolve().parents[1] / "traces" / "azure_conv.csv"
# Requests are this much shorter than in the trace, so that two cores keep up.
SHORTER = 8
# After so many seconds of a constant load nothing is held any more for what was before.
SETTLES = 70


@dataclasses.dataclass(frozen=True)
class Stretch:
    name: str
    seconds: float
    # Seconds of the trace in one; 0: nothing is played.
    speed: float
    constant: bool = False


@dataclasses.dataclass(frozen=True)
class Arrival:
    at: float
    prompt: int
    output: int


FULL = (
    Stretch("5 x", 60, 5),
    Stretch("20 x", 50, 20),
    Stretch("nothing", 80, 0),
    Stretch("10 x", 50, 10),
    Stretch("constant", 180 + SETTLES, 10, constant=True),
    Stretch("nothing", 80, 0),
)


def trace() -> list[Arrival]:
    lines = (line for line in TRACE.read_text().splitlines() if not line.startswith("#"))
    return [
        Arrival(float(row["seconds"]), *(max(1, int(row[f"{part}_tokens"]) // SHORTER) for part in ("prompt", "output")))
        for row in csv.DictReader(lines)
    ]


def arrivals(stretches: tuple[Stretch, ...]) -> list[Arrival]:
    """All requests, from the first stretch's begin; the trace goes on where it was when it was played last."""
    rows = trace()
    length = rows[-1].at
    prompt, output = (round(sum(getattr(row, part) for row in rows) / len(rows)) for part in ("prompt", "output"))
    made, begin, played = [], 0.0, 0.0
    for stretch in stretches:
        if stretch.constant:
            gap = length / len(rows) / stretch.speed
            made += [Arrival(begin + gap * index, prompt, output) for index in range(int(stretch.seconds / gap))]
        elif stretch.speed:
            end = played + stretch.seconds * stretch.speed
            assert end <= length, "the trace is shorter than what is played of it"
            made += [
                dataclasses.replace(row, at=begin + (row.at - played) / stretch.speed) for row in rows if played <= row.at < end
            ]
            played = end
        begin += stretch.seconds
    return made
