"""A killed worker ends its requests with a typed error or a correct full answer, and the cluster goes on."""

import concurrent.futures
import os
import random
import signal
import threading
import time

import grpc

from inference import fault

LONG = {"temperature": 0, "maxTokens": 400, "ignoreEos": True}
TYPED = {"WORKER_LOST", "TRANSFER_FAILED", "NO_WORKER", "DRAINING", "STALE_INCARNATION"}


def outcome(stream, under_way):
    """Tokens and whether the stream finished; every other end must be typed."""
    out = []
    try:
        for response in stream:
            out += response.token_ids
            if len(out) >= 40:
                under_way.set()
            if response.HasField("finish"):
                return out, True
        raise AssertionError("a silent end")
    except grpc.RpcError as error:
        assert fault(error)[0] in TYPED, (error.code(), error.details())
        return out, False


def check(cluster, role, wait):
    client = cluster.inference()
    rng = random.Random(role)
    prompts = [[rng.randrange(6, 2000) for _ in range(900)] for _ in range(8)]
    right = [client.tokens(ids, **LONG)[0] for ids in prompts]
    victim = cluster.workers(role)[0]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        under_way = threading.Event()
        streams = [client.generate(tokens={"ids": ids}, sampling=LONG) for ids in prompts]
        futures = [pool.submit(outcome, stream, under_way) for stream in streams]
        wait(under_way)
        os.kill(victim["pid"], signal.SIGKILL)
        for future, expected in zip(futures, right):
            out, finished = future.result(60)
            assert out == (expected if finished else expected[: len(out)]), "never wrong text"
    # The rest serves on at once, and a fresh start of the same name joins under a new incarnation.
    assert client.tokens(prompts[0], **LONG)[0] == right[0]
    router = cluster.state["router"]["pid"]

    def back():
        workers = [worker for worker in cluster.workers(role) if worker["name"] == victim["name"]]
        return workers and workers[0]["pid"] != victim["pid"]

    cluster.wait(back, 60, "restarted worker")
    assert cluster.state["router"]["pid"] == router
    assert client.tokens(prompts[1], **LONG)[0] == right[1]
    time.sleep(0.5)
    cluster.wait_idle(5)


def test_prefill_worker_killed(pairs):
    check(pairs, "prefill", lambda _: time.sleep(0.1))


def test_decode_worker_killed(pairs):
    check(pairs, "decode", lambda under_way: under_way.wait(60))
