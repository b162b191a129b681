"""What has to be true of a run."""

import math

from .loops import LOOK, MOST, POLL, TRIGGERS, Poll, Sample
from .player import Answer
from .run import Run
from .stretches import SETTLES

# The router measures once a second.
MEASURE = 1.0


def failures(answers: list[Answer]) -> list[str]:
    return [f"a request of second {answer.at:.0f} failed: {answer.fault}" for answer in answers if answer.fault]


def needed(role: str, sample: Sample, slots: int) -> int:
    """Workers that the queue asks for at a moment, by the trigger's own target."""
    if role == "prefill":
        target = sample.waiting / float(TRIGGERS[role]["waitSeconds"])
    else:
        target = sample.rooms / slots / float(TRIGGERS[role]["rooms"])
    return min(MOST, math.ceil(target - 1e-6))


def lag(polls: list[Poll], samples: list[Sample]) -> float:
    """One poll, as they really were, and what it takes to measure and to look."""
    busy = max((after.at - before.at for before, after in zip(polls, polls[1:])), default=POLL)
    looks = max((after.at - before.at for before, after in zip(samples, samples[1:])), default=LOOK)
    return busy + MEASURE + looks


def following(role: str, polls: list[Poll], samples: list[Sample], slots: int) -> list[str]:
    """Replicas are at least what the queue has asked for all the while since one poll ago, and what the scaler said throughout."""
    allowed, wrong = lag(polls, samples), []
    for number, sample in enumerate(samples):
        since = [other for other in samples[: number + 1] if other.at >= sample.at - allowed]
        if sample.at < allowed:
            continue
        for what, least in (
            ("the queue asks for", min(needed(role, other, slots) for other in since)),
            ("the scaler says", min(MOST, min(other.says[role] for other in since))),
        ):
            if sample.wanted[role] < least:
                wrong.append(f"{role}: {sample.wanted[role]} replicas at second {sample.at:.0f}, {what} {least} since {allowed:.1f} s")
    return wrong


def actions(polls: list[Poll], begin: float, end: float) -> int:
    """How often the number of replicas was changed."""
    replicas = [(-1.0, 0), *((poll.at, poll.replicas) for poll in polls)]
    return sum(begin <= at < end and now != before for (_, before), (at, now) in zip(replicas, replicas[1:]))


def all_of(run: Run, slots: int) -> list[str]:
    """What is wrong with a run."""
    wrong = failures(run.answers)
    wrong += [f"a worker that was taken away ended with {code}" for code in run.codes if code]
    for role, polls in run.polls.items():
        wrong += following(role, polls, run.samples, slots)
        spans = run.spans()
        for number, (stretch, begin, end) in enumerate(spans):
            inside = [sample.wanted[role] for sample in run.samples if begin <= sample.at < end]
            if not stretch.speed and inside[-1] != 0:
                wrong.append(f"{role}: {inside[-1]} replicas after {stretch.seconds:.0f} s of nothing")
            if stretch.speed and max(inside) == 0:
                wrong.append(f"{role}: no replicas in the stretch {stretch.name}")
            if stretch.constant and (count := actions(polls, begin + SETTLES, end)) > 1:
                wrong.append(f"{role}: {count} actions at constant load")
        if max(sample.wanted[role] for sample in run.samples) < 2:
            wrong.append(f"{role}: never more than one replica, so nothing was followed")
    return wrong
