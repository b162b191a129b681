"""Plays the Azure trace against a router and workers that KEDA's part scales by what the router says: `make autoscale`.

Exit code 1, and why, if a request failed or replicas did not follow the queue, came back to none, or were left alone at constant load.
Otherwise writes docs/autoscaling.md and docs/autoscaling.svg.
"""

import asyncio
import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from inference import Inference  # noqa: E402
from keda import Scaler  # noqa: E402
from processes import Process  # noqa: E402

from . import checks, plot, report  # noqa: E402
from .deployment import Deployment  # noqa: E402
from .loops import TRIGGERS, Scaling, Watch  # noqa: E402
from .player import ROOT, play  # noqa: E402
from .run import Run  # noqa: E402
from .stretches import FULL, arrivals  # noqa: E402

MODEL = ROOT / "models" / "k3-demo"
SLOTS = 16


def warm(router: str):
    """Compiles what is not in the programs' cache yet, so that all starts are alike."""
    deployments = [Deployment(role, flags(router)) for role in TRIGGERS]
    for deployment in deployments:
        deployment.scale(1)
    for deployment in deployments:
        deployment.pods[0].wait(deployment.pods[0].joined)
    for deployment in deployments:
        deployment.stop()


def flags(router: str) -> tuple:
    return ("--model", MODEL, "--router", router, "--threads", 1, "--slots", SLOTS, "--grace", 120)


def listening() -> Process:
    common = ("--model", MODEL, "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0")
    router = Process("router", *common, "--on-demand", "--worker-wait", 240)
    return router.wait(router.ready)


def scaled(router: Process) -> Run:
    address = router.addresses["grpc"]
    inference = Inference(address, MODEL.name)
    deployments = {role: Deployment(role, flags(address)) for role in TRIGGERS}
    began = time.monotonic()
    clock = lambda: time.monotonic() - began
    scaler = Scaler(inference)
    loops = {role: Scaling(role, scaler, deployment, clock) for role, deployment in deployments.items()}
    watch = Watch(router.addresses["http"], scaler, deployments, clock)
    try:
        with loops["prefill"], loops["decode"], watch:
            answers = asyncio.run(play(address, MODEL.name, arrivals(FULL), clock))
            until = sum(stretch.seconds for stretch in FULL)
            while clock() < until and not any(loop.fault for loop in (*loops.values(), watch)):
                time.sleep(0.2)
    finally:
        for deployment in deployments.values():
            deployment.stop()
        inference.close()
    for loop in (*loops.values(), watch):
        if loop.missed:
            print(f"{type(loop).__name__}: not answered in time {loop.missed} times")
    polls = {role: loop.polls for role, loop in loops.items()}
    codes = [code for deployment in deployments.values() for code in deployment.codes]
    return Run(FULL, answers, polls, watch.samples, codes, os.getloadavg()[2])


def main() -> int:
    warm_router = listening()
    warm(warm_router.addresses["grpc"])
    warm_router.terminate()
    warm_router.ended()
    router = listening()
    try:
        run = scaled(router)
    finally:
        router.terminate()
        router.ended()
    if len(sys.argv) > 1:
        pathlib.Path(sys.argv[1]).write_text(json.dumps(run.data()))
    print(report.table(run))
    wrong = checks.all_of(run, SLOTS)
    for line in wrong:
        print(f"WRONG: {line}")
    if wrong:
        return 1
    (ROOT / "docs" / "autoscaling.md").write_text(report.page(run, SLOTS))
    plot.draw(run, ROOT / "docs" / "autoscaling.svg", SLOTS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
