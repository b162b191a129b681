"""KEDA and the horizontal autoscaler, as far as they have to do with an external scaler."""

import collections
import math


class Scaler:
    """What KEDA asks a router for, for one trigger's metadata at a time."""

    def __init__(self, inference):
        self.inference = inference

    def call(self, name: str, timeout: float = 5, **fields):
        request, call = self.inference.method("externalscaler.ExternalScaler", name)
        return call(request(**fields), timeout=timeout)

    def target(self, trigger: dict) -> tuple[str, float]:
        [spec] = self.call("GetMetricSpec", scalerMetadata=trigger).metricSpecs
        return spec.metricName, spec.targetSizeFloat

    def metric(self, trigger: dict, name: str) -> float:
        request, _ = self.inference.method("externalscaler.ExternalScaler", "GetMetrics")
        reference = request().scaledObjectRef
        reference.scalerMetadata.update(trigger)
        [value] = self.call("GetMetrics", scaledObjectRef=reference, metricName=f"s0-{name}").metricValues
        assert value.metricName == f"s0-{name}"
        return value.metricValueFloat

    def replicas(self, trigger: dict) -> int:
        """Desired replicas of an AverageValue target."""
        name, target = self.target(trigger)
        return desired(self.metric(trigger, name), target)

    def active(self, trigger: dict) -> bool:
        return self.call("IsActive", scalerMetadata=trigger).result


def desired(total: float, target: float) -> int:
    return math.ceil(total / target)


class Autoscaler:
    """How many replicas there shall be. Pure: what the scaler said and the time go in.

    KEDA takes them from none to one and back, the horizontal autoscaler does the rest with its default behaviour: up at once, down to
    the most that was asked for within `stabilization` seconds, and neither for a difference within the tolerance.
    """

    TOLERANCE = 0.1

    def __init__(self, most: int, cooldown: float, stabilization: float):
        self.most, self.cooldown, self.stabilization = most, cooldown, stabilization
        self.last_active = -math.inf
        self.recommended = collections.deque()

    def decide(self, now: float, current: int, active: bool, total: float, target: float) -> int:
        if active:
            self.last_active = now
        if now - self.last_active >= self.cooldown or (current == 0 and not active):
            self.recommended.clear()
            return 0
        current = max(current, 1)
        steady = abs(total / (target * current) - 1) <= self.TOLERANCE
        asked = min(max(current if steady else desired(total, target), 1), self.most)
        self.recommended.append((now, asked))
        while self.recommended[0][0] < now - self.stabilization:
            self.recommended.popleft()
        return asked if asked >= current else min(current, max(most for _, most in self.recommended))
