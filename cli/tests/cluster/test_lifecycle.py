"""Nothing is left held after much traffic, and nothing is left running after the end."""

import concurrent.futures
import contextlib
import random
import subprocess
import time

import grpc
import httpx
import pytest

from conftest import MODEL, ROOT, Cluster, alive
from inference import Inference


def test_a_thousand_requests_a_third_cancelled_leave_nothing_held(cluster):
    rng = random.Random(1)
    client = cluster.inference()

    def one(index):
        ids = [rng.randrange(5, 500) for _ in range(rng.randrange(1, 300))]
        stream = client.generate(
            tokens={"ids": ids},
            sampling={"maxTokens": rng.randrange(1, 24), "temperature": 1, "seed": str(index), "ignoreEos": True},
        )
        if index % 3 == 0:
            time.sleep(rng.random() * 0.3)
            stream.cancel()
        try:
            tokens, last = client.collect(stream)
            return len(tokens) == last.usage.completion_tokens
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.CANCELLED, error.details()
            return None

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        results = list(pool.map(one, range(1000)))
    assert False not in results
    assert results.count(None) > 100 and results.count(True) >= 660
    cluster.wait_idle()
    late = {address: cluster.metrics(address).get("tandem_engine_compilations_after_ready_total") for address in cluster.addresses()[1:]}
    assert set(late.values()) == {0.0}, late


def test_stopping_ends_running_streams_whole_and_every_process(tmp_path):
    # what is not logged is heard all the same
    running = Cluster(tmp_path, more=("--log=error",))
    client = running.inference()
    pids = [running.state["router"]["pid"], *(worker["pid"] for worker in running.state["workers"])]
    stream = client.generate(tokens={"ids": [7] * 50}, sampling={"maxTokens": 100, "temperature": 0, "ignoreEos": True})
    first = next(stream)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        rest = pool.submit(lambda: sum(len(response.token_ids) for response in stream))
        assert running.stop() == 0
        assert len(first.token_ids) + rest.result(10) == 100, "a drain lets running streams end"
    assert [pid for pid in pids if alive(pid)] == []


def test_a_worker_that_drains_is_alive_until_its_last_stream_has_ended(pairs):
    client = pairs.inference()
    drains = {worker["http"]: draining(worker) for worker in pairs.workers("decode")}
    stream = client.generate(
        tokens={"ids": [9] * 40}, sampling={"maxTokens": 2500, "temperature": 0, "ignoreEos": True},
    )
    tokens = len(next(stream).token_ids)
    [worker] = [each for each in pairs.workers("decode") if pairs.metrics(each["http"])["tandem_pool_slots_held"]]
    assert drains[worker["http"]]().running == 1
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        probed = pool.submit(probes, worker["http"])
        tokens += sum(len(response.token_ids) for response in stream)
        ended = time.monotonic()
    # What is under way to the client when the worker ends its stream is left out.
    during = [answers for asked, answers in probed.result() if asked < ended - 0.3]
    assert tokens == 2500
    assert {health for health, _ in during} == {200}, "whoever is alive is not killed"
    assert 503 in {ready for _, ready in during}, "it says that it takes nothing new"
    pairs.wait(lambda: pairs.is_back(worker), 120, "another start of the worker")
    pairs.wait_idle()
    client.close()


def draining(worker: dict):
    """A call that drains a worker, ready to be made."""
    own = Inference(worker["grpc"], MODEL.name)
    request, describe = own.method("tandem.v1.Worker", "Describe")
    incarnation = describe(request()).record.incarnation
    request, drain = own.method("tandem.v1.Worker", "Drain")
    return lambda: drain(request(incarnation=incarnation))


def probes(address: str) -> list[tuple[float, tuple[int, int]]]:
    """When a worker was asked, and what `/health` and `/ready` said, until it is gone."""
    answers = []
    until = time.monotonic() + 60
    with contextlib.suppress(httpx.TransportError):
        while time.monotonic() < until:
            asked = time.monotonic()
            health, ready = (httpx.get(f"http://{address}/{path}", timeout=5).status_code for path in ("health", "ready"))
            answers.append((asked, (health, ready)))
            time.sleep(0.01)
    return answers


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_stopping_while_programs_are_compiled_is_no_crash(tmp_path, role):
    log = tmp_path / "log"
    with log.open("wb") as out:
        command = [ROOT / f"target/release/tandem-{role}-worker", "--model", MODEL, "--cache", tmp_path / "cache"]
        worker = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            until = time.monotonic() + 120
            while b"compiled" not in log.read_bytes():
                assert worker.poll() is None and time.monotonic() < until, log.read_text()
                time.sleep(0.02)
            worker.terminate()
            assert worker.wait(10) == 0, log.read_text()
        finally:
            worker.kill()
