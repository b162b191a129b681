"""A run as people read it."""

import os
import statistics

from . import checks
from .loops import COOLDOWN, MOST, POLL, STABILIZATION, TRIGGERS
from .run import Run
from .stretches import SETTLES, SHORTER

HEAD = ("stretch", "seconds", "requests", "failed", "TTFT p50, s", "TTFT p99, s", "prefill replicas", "decode replicas", "actions")


def seconds(ttfts: list[float], quantile: float) -> str:
    return f"{statistics.quantiles(ttfts, n=100)[round(quantile * 100) - 1]:.2f}" if len(ttfts) > 1 else "-"


def rows(run: Run) -> list[list[str]]:
    made = []
    for stretch, begin, end in run.spans():
        answers = [answer for answer in run.answers if begin <= answer.at < end]
        ttfts = [answer.ttft for answer in answers if answer.ttft is not None]
        inside = [sample for sample in run.samples if begin <= sample.at < end]
        ranges = []
        for role in run.polls:
            replicas = [sample.wanted[role] for sample in inside]
            ranges.append(f"{min(replicas)} to {max(replicas)}")
        actions = sum(checks.actions(polls, begin, end) for polls in run.polls.values())
        failed = sum(answer.fault is not None for answer in answers)
        made.append([
            stretch.name, f"{stretch.seconds:.0f}", str(len(answers)), str(failed), seconds(ttfts, 0.5), seconds(ttfts, 0.99), *ranges,
            str(actions),
        ])  # fmt: skip
    return made


def table(run: Run) -> str:
    lines = [list(HEAD), ["---"] * len(HEAD), *rows(run)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def trigger(role: str) -> str:
    return ", ".join(f"`{key}: {value}`" for key, value in TRIGGERS[role].items())


def page(run: Run, slots: int) -> str:
    lags = {role: checks.lag(polls, run.samples) for role, polls in run.polls.items()}
    return f"""# Autoscaling by queue depth

What `make autoscale` does and last saw, on a machine of {os.cpu_count()} cores with a load average of {run.load:.1f} (15 minutes, the run's own
included). It writes this page.

A router (`--on-demand`) and real prefill and decode workers of `k3-demo`, at first none. What KEDA and the horizontal autoscaler would ask and do
is done by a gRPC client of `externalscaler.ExternalScaler` with their arithmetic and default behaviour, ten times as fast: a look every {POLL} s,
{STABILIZATION:.0f} s of stabilization before replicas are taken away, {COOLDOWN:.0f} s of cooldown before the last one is, at most {MOST} a role. Replicas
are processes; one that is taken away gets SIGTERM, drains, and has to end with 0. No Kubernetes cluster was used.

The load is an [excerpt](../cli/tests/cluster/traces/README.md) of Azure's conversation trace: every 24th request, prompts and outputs 1/{SHORTER}
as long, played at several speeds; nothing, for long enough to go to none; and its mean as a constant load, {SETTLES} s until what was before
is no longer held for, and then 30 minutes of the trace's time.

{table(run)}

![queue, rooms, replicas and TTFT over time](autoscaling.svg)

The run fails unless

- every request is answered whole, those among them that came when there was no worker;
- replicas are never fewer than what the queue, by the targets below, and the scaler asked for throughout the time of one poll and of measuring
  ({max(lags.values()):.1f} s here, by the longest poll);
- both roles go to none when there is nothing to do, and back;
- in those 30 minutes of constant load replicas of a role are changed once at most.

Triggers, low so that few cores are enough to want several workers of {slots} slots and one thread each: {trigger("prefill")}; {trigger("decode")}.
"""
