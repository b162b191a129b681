"""A killed worker costs its requests a pause and nothing else: every client gets its whole right answer."""

import concurrent.futures
import os
import random
import signal
import threading
import time

LONG = {"temperature": 0, "maxTokens": 160, "ignoreEos": True}


def tokens(stream, under_way):
    """All tokens of a stream, which must finish."""
    out = []
    for response in stream:
        out += response.token_ids
        if len(out) >= 40:
            under_way.set()
        if response.HasField("finish"):
            return out, response
    raise AssertionError("a silent end")


def check(cluster, role, wait):
    client = cluster.inference()
    rng = random.Random(role)
    prompts = [[rng.randrange(6, 2000) for _ in range(700)] for _ in range(6)]
    victim, migrations = cluster.workers(role)[0], cluster.migrations()
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        right = list(pool.map(lambda ids: client.tokens(ids, **LONG)[0], prompts))
        under_way = threading.Event()
        streams = [client.generate(timeout=180, tokens={"ids": ids}, sampling=LONG) for ids in prompts]
        futures = [pool.submit(tokens, stream, under_way) for stream in streams]
        wait(under_way)
        os.kill(victim["pid"], signal.SIGKILL)
        for future, expected in zip(futures, right):
            out, last = future.result(180)
            assert out == expected
            assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (700, 160)
    assert cluster.migrations() > migrations, "nobody noticed"
    # The rest serves on at once, and a fresh start of the same name joins under a new incarnation.
    assert client.tokens(prompts[0], **LONG)[0] == right[0]
    router = cluster.state["router"]["pid"]
    cluster.wait(lambda: cluster.is_back(victim), 60, "restarted worker")
    assert cluster.state["router"]["pid"] == router
    assert client.tokens(prompts[1], **LONG)[0] == right[1]
    time.sleep(0.5)
    cluster.wait_idle(5)


def test_prefill_worker_killed(pairs):
    check(pairs, "prefill", lambda _: time.sleep(0.1))


def test_decode_worker_killed(pairs):
    check(pairs, "decode", lambda under_way: under_way.wait(60))


def test_the_only_decode_worker_killed(cluster):
    check(cluster, "decode", lambda under_way: under_way.wait(60))
