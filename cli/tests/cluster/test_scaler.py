"""The router as KEDA's external scaler, asked as KEDA asks, over real workers."""

import concurrent.futures
import threading
import time

import grpc
import pytest

from keda import Autoscaler, Scaler

PREFILL = {"role": "prefill", "waitSeconds": "0.2", "windowSeconds": "1", "holdSeconds": "3"}
DECODE = {"role": "decode", "rooms": "0.1", "windowSeconds": "1", "holdSeconds": "3"}


@pytest.fixture
def keda(cluster):
    inference = cluster.inference()
    yield Scaler(inference)
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


def test_replicas_are_reckoned_as_kubernetes_does():
    autoscaler, replicas = Autoscaler(most=12, cooldown=30, stabilization=20), 0
    for second, active, total, right in (
        (0, False, 0, 0), (1, True, 0, 1), (2, True, 3, 3), (3, True, 1, 3), (22, True, 2, 3), (23, True, 2, 2), (24, True, 40, 12),
        (25, True, 11, 12), (40, False, 0, 12), (50, False, 0, 1), (55, False, 0, 0), (56, False, 5, 0),
    ):  # fmt: skip
        replicas = autoscaler.decide(second, replicas, active, total, 1.0)
        assert replicas == right, second
