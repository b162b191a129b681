"""The router as KEDA's external scaler, asked as KEDA asks, over real workers."""

import concurrent.futures
import threading
import time

import grpc
import pytest

PREFILL = {"role": "prefill", "waitSeconds": "0.2", "windowSeconds": "1", "holdSeconds": "3"}
DECODE = {"role": "decode", "rooms": "0.1", "windowSeconds": "1", "holdSeconds": "3"}


class Keda:
    """What KEDA does at each poll."""

    def __init__(self, inference):
        self.inference = inference

    def call(self, name: str, timeout: float = 5, **fields):
        request, call = self.inference.method("externalscaler.ExternalScaler", name)
        return call(request(**fields), timeout=timeout)

    def target(self, trigger: dict) -> tuple[str, float]:
        [spec] = self.call("GetMetricSpec", scalerMetadata=trigger).metricSpecs
        return spec.metricName, spec.targetSizeFloat

    def replicas(self, trigger: dict) -> int:
        """Desired replicas of an AverageValue target, as the horizontal autoscaler reckons them."""
        name, target = self.target(trigger)
        request, _ = self.inference.method("externalscaler.ExternalScaler", "GetMetrics")
        reference = request().scaledObjectRef
        reference.scalerMetadata.update(trigger)
        [value] = self.call("GetMetrics", scaledObjectRef=reference, metricName=f"s0-{name}").metricValues
        assert value.metricName == f"s0-{name}"
        return -int(-value.metricValueFloat // target)

    def active(self, trigger: dict) -> bool:
        return self.call("IsActive", scalerMetadata=trigger).result


@pytest.fixture
def keda(cluster):
    inference = cluster.inference()
    yield Keda(inference)
    inference.close()


def within(seconds: float, done):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if done():
            return
        time.sleep(0.2)
    raise AssertionError(f"not within {seconds} s")


def test_replicas_follow_the_queue_and_fall_back(cluster, keda):
    for trigger in (PREFILL, DECODE):
        within(10, lambda trigger=trigger: not keda.active(trigger))
        assert keda.replicas(trigger) == 0
    said, stream = [], keda.call("StreamIsActive", timeout=120, scalerMetadata=PREFILL)

    def listen():
        try:
            said.extend(answer.result for answer in stream)
        except grpc.RpcError:
            pass

    threading.Thread(target=listen, daemon=True).start()
    inference = cluster.inference()

    def ask(seed: int):
        prompt = [3 + (seed * 31 + position * 7) % 900 for position in range(1500)]
        return inference.tokens(prompt, max_tokens=48, temperature=0)

    with concurrent.futures.ThreadPoolExecutor(12) as clients:
        asked = [clients.submit(ask, seed) for seed in range(12)]
        within(8, lambda: keda.replicas(PREFILL) >= 4)
        within(8, lambda: keda.replicas(DECODE) >= 3)
        assert keda.active(PREFILL) and keda.active(DECODE)
        assert all(len(done.result()[0]) == 48 for done in asked)
    within(15, lambda: keda.replicas(PREFILL) == 0 and keda.replicas(DECODE) == 0)
    within(5, lambda: said[:3] == [False, True, False])
    stream.cancel()
    inference.close()


def test_a_trigger_that_is_not_understood_is_refused_by_key(keda):
    for trigger, key in (({}, "role"), ({"role": "both"}, "role"), ({"role": "decode", "room": "1"}, "room")):
        with pytest.raises(grpc.RpcError) as refused:
            keda.target(trigger)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert refused.value.details().startswith(f"scalerMetadata.{key}: ")
