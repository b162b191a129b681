"""What runs beside the load: an autoscaler for each role, and somebody who looks."""

import dataclasses
import threading
import time

import grpc
import httpx

from keda import Autoscaler, Scaler

from .deployment import Deployment

# Kubernetes' and KEDA's defaults, ten times as fast, as the trace is at 10 x: the horizontal autoscaler looks every 15 s, and holds what
# it would take away for 300 s, as long as KEDA waits before it goes to none; the router's `windowSeconds` and `holdSeconds` likewise.
POLL, COOLDOWN, STABILIZATION = 1.5, 30.0, 30.0
TIMES = {"windowSeconds": "3", "holdSeconds": "30"}
# Low, so that a few workers on few cores are asked for without being at their limit.
TRIGGERS = {
    "prefill": {"role": "prefill", "waitSeconds": "0.25", "busy": "0.4", **TIMES},
    "decode": {"role": "decode", "rooms": "0.15", **TIMES},
}
MOST = 3
LOOK = 0.5


@dataclasses.dataclass
class Poll:
    """One look of an autoscaler: what it was told, and what it made of it."""

    at: float
    active: bool
    total: float
    replicas: int


@dataclasses.dataclass
class Sample:
    """What there was at a moment: the router's own figures, what the scaler says, and the replicas."""

    at: float
    waiting: float  # seconds of one prefill worker's work
    rooms: float  # sequences that hold or want one of decode's rooms
    says: dict[str, int]
    wanted: dict[str, int]
    ready: dict[str, int]


class Loop:
    """Something that is done again and again in a thread, until the `with` is over or it fails."""

    def __init__(self, every: float, clock):
        self.every, self.clock = every, clock
        self.over, self.fault, self.missed = threading.Event(), None, 0
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        try:
            while not self.over.is_set():
                began = time.monotonic()
                try:
                    self.once()
                except (grpc.RpcError, httpx.TransportError):
                    # who is not answered in time leaves everything as it is, as KEDA does
                    self.missed += 1
                self.over.wait(max(0.0, began + self.every - time.monotonic()))
        except Exception as fault:
            self.fault = fault

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        if self.fault:
            raise self.fault


class Scaling(Loop):
    """KEDA and the horizontal autoscaler of one role."""

    def __init__(self, role: str, scaler: Scaler, deployment: Deployment, clock):
        super().__init__(POLL, clock)
        self.trigger, self.scaler, self.deployment = TRIGGERS[role], scaler, deployment
        self.autoscaler, self.polls = Autoscaler(MOST, COOLDOWN, STABILIZATION), []

    def once(self):
        name, target = self.scaler.target(self.trigger)
        active, total = self.scaler.active(self.trigger), self.scaler.metric(self.trigger, name)
        now = self.clock()
        replicas = self.autoscaler.decide(now, self.deployment.wanted, active, total, target)
        self.deployment.look()
        self.deployment.scale(replicas)
        self.polls.append(Poll(now, active, total, replicas))


class Watch(Loop):
    def __init__(self, router: str, scaler: Scaler, deployments: dict[str, Deployment], clock):
        super().__init__(LOOK, clock)
        self.http, self.url = httpx.Client(timeout=10), f"http://{router}/status"
        self.scaler, self.deployments, self.samples = scaler, deployments, []
        self.names = {role: scaler.target(trigger)[0] for role, trigger in TRIGGERS.items()}
        self.rate = 0.0

    def once(self):
        status = self.http.get(self.url).json()
        prefill, decode = ([worker for worker in status[role] if not worker["draining"]] for role in ("prefill", "decode"))
        rates = [worker["tokens_per_second"] for worker in prefill if worker["tokens_per_second"] > 0]
        self.rate = sum(rates) / len(rates) if rates else self.rate
        tokens = status["router"]["unplaced_tokens"] + sum(worker["queued_tokens"] for worker in prefill)
        rooms = status["router"]["unplaced"] + sum(worker["slots"]["used"] + worker["waiting"] for worker in decode)
        says = {role: int(self.scaler.metric(trigger, self.names[role])) for role, trigger in TRIGGERS.items()}
        wanted = {role: deployment.wanted for role, deployment in self.deployments.items()}
        ready = {role: deployment.ready for role, deployment in self.deployments.items()}
        self.samples.append(Sample(self.clock(), tokens / self.rate if self.rate else 0.0, rooms, says, wanted, ready))
