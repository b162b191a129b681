"""Replicas of one role, as a Deployment has them."""

import itertools
import time

from processes import Process


class Deployment:
    def __init__(self, role: str, flags: tuple):
        self.role, self.flags = role, flags
        self.pods, self.leaving, self.codes = [], [], []
        self.numbers = itertools.count()

    def scale(self, replicas: int):
        """Starts what is missing; of those too many, who takes no requests yet goes first, then the youngest."""
        while len(self.pods) < replicas:
            name = f"{self.role}-{next(self.numbers)}"
            self.pods.append(Process(f"{self.role}-worker", *self.flags, "--name", name))
        while len(self.pods) > replicas:
            unready = [pod for pod in self.pods if not pod.joined.is_set()]
            pod = (unready or self.pods)[-1]
            self.pods.remove(pod)
            pod.terminate()
            self.leaving.append(pod)

    def look(self):
        """Takes note of who has ended."""
        for pod in [pod for pod in self.leaving if not pod.is_running()]:
            self.leaving.remove(pod)
            self.codes.append(pod.ended())
        for pod in self.pods:
            assert pod.is_running(), f"a worker ended by itself: {pod.complaints[-20:]}"

    @property
    def wanted(self) -> int:
        return len(self.pods)

    @property
    def ready(self) -> int:
        return sum(pod.joined.is_set() for pod in self.pods)

    def stop(self, seconds: float = 60):
        self.scale(0)
        until = time.monotonic() + seconds
        while self.leaving and time.monotonic() < until:
            self.look()
            time.sleep(0.05)
        for pod in self.leaving:
            self.codes.append(pod.ended(1))
