"""Two routers, three workers and a real etcd that is paused, emptied, compacted and killed under load.

No request fails, every answer equals the undisturbed one, and workers are registered again by themselves, each once.
"""

import concurrent.futures
import os
import random
import signal
import threading
import time

import httpx
import pytest

from conftest import MODEL, Cluster
from etcd import Etcd
from inference import Inference
from processes import Process

CLIENTS = 4
PAUSE = float(os.environ.get("TANDEM_TEST_ETCD_PAUSE", "30"))


@pytest.fixture(scope="module")
def etcd(tmp_path_factory):
    server = Etcd(tmp_path_factory.mktemp("etcd"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, etcd):
    running = Cluster(tmp_path_factory.mktemp("cluster"), prefill=1, decode=2, more=("--etcd", etcd.url))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def second(etcd, cluster):
    router = Process("router", "--model", MODEL, "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--etcd", etcd.url)
    http = router.wait(router.ready).addresses["http"]
    cluster.wait(lambda: httpx.get(f"http://{http}/ready").status_code == 200, 20, "a second router that is ready")
    yield router
    router.terminate()
    assert router.ended() == 0


def requests() -> list[dict]:
    rng = random.Random(5)
    return [
        {"tokens": {"ids": [rng.randrange(6, 2000) for _ in range(rng.choice((5, 300)))]},
         "sampling": {"temperature": 0.8, "seed": str(index), "maxTokens": rng.choice((20, 120)), "ignoreEos": True}}
        for index in range(8)
    ]


class Load:
    """Clients that ask both routers until the end of the `with`, which fails with the first of them."""

    def __init__(self, routers: list[str]):
        self.clients = [Inference(address, MODEL.name) for address in routers]
        self.asked = requests()
        self.right = [self.ask(self.clients[0], request) for request in self.asked]
        self.over, self.answers = threading.Event(), 0

    @staticmethod
    def ask(client, request):
        return client.collect(client.generate(timeout=120, **request))[0]

    def run(self, number: int):
        rng = random.Random(number)
        try:
            while not self.over.is_set():
                index = rng.randrange(len(self.asked))
                assert self.ask(self.clients[number % len(self.clients)], self.asked[index]) == self.right[index]
                self.answers += 1
        finally:
            self.over.set()

    def __enter__(self):
        self.pool = concurrent.futures.ThreadPoolExecutor(CLIENTS)
        self.running = [self.pool.submit(self.run, number) for number in range(CLIENTS)]
        return self

    def goes_on(self, seconds: float):
        """For so long, with answers all the time."""
        before, until = self.answers, time.monotonic() + seconds
        while time.monotonic() < until and not self.over.is_set():
            time.sleep(0.05)
        assert not self.over.is_set(), "a request failed"
        assert self.answers > before

    def __exit__(self, *_):
        self.over.set()
        for client in self.running:
            client.result(150)
        self.pool.shutdown()


def test_no_request_fails_whatever_becomes_of_etcd(etcd, cluster, second):
    routers = [cluster.state["router"]["http"], second.addresses["http"]]

    def at_all(name: str, value: float) -> bool:
        return all(cluster.metrics(router)[name] == value for router in routers)

    def whole() -> bool:
        """Every worker is registered once, as it runs now, and both routers see all of them."""
        registered = sorted((record["name"], record["pid"]) for record in etcd.records())
        running = sorted((worker["name"], worker["pid"]) for worker in cluster.state["workers"])
        answers = at_all("tandem_discovery_connected", 1) and at_all("tandem_discovery_unlisted_members", 0)
        return registered == running and answers and at_all("tandem_router_workers", 3)

    def away() -> bool:
        return at_all("tandem_discovery_connected", 0)

    assert whole()
    with Load([cluster.state["router"]["grpc"], second.addresses["grpc"]]) as load:
        # silent, and a worker starts anew meanwhile
        etcd.pause()
        resumes = time.monotonic() + PAUSE
        cluster.wait(away, 15, "routers that notice the silence")
        assert at_all("tandem_router_workers", 3), "no member is lost"
        for path in ("health", "ready"):
            answer = httpx.get(f"http://{routers[0]}/{path}")
            assert answer.status_code == 200 and "etcd is away" in answer.text, answer.text
        assert "etcd is away" in httpx.get(f"http://{routers[0]}/status").json()["router"]["trouble"]
        victim = cluster.workers("decode")[0]
        os.kill(victim["pid"], signal.SIGKILL)
        load.goes_on(resumes - time.monotonic())
        etcd.resume()
        cluster.wait(lambda: cluster.is_back(victim) and whole(), 30, "worker that joins when etcd is back")

        # empty
        etcd.wipe()
        cluster.wait(lambda: len(etcd.records()) < 3, 5, "empty etcd")
        cluster.wait(whole, 30, "workers that register again")

        # compacted, again and again
        for count in range(20):
            etcd.compact(etcd.put("/tandem/elsewhere", str(count)))
        load.goes_on(1)
        assert whole()

        # dead for a moment, with all it knew
        etcd.kill()
        cluster.wait(away, 15, "routers that notice its death")
        etcd.run()
        cluster.wait(whole, 30, "etcd that is back")
        load.goes_on(1)

    print(f"{load.answers} answers")
    for router in routers:
        outcomes = [line for line in httpx.get(f"http://{router}/metrics").text.splitlines() if "requests_total{" in line]
        assert outcomes and all("finished" in line for line in outcomes), outcomes
    cluster.wait_idle(5)
    assert httpx.get(f"http://{routers[0]}/health").text == "ok\n"


def test_a_worker_that_is_asked_to_end_is_gone_from_etcd_at_once(etcd, cluster, second):
    leaver = cluster.workers("decode")[1]
    os.kill(leaver["pid"], signal.SIGTERM)
    registered = lambda: leaver["pid"] in [record["pid"] for record in etcd.records()]
    cluster.wait(lambda: not registered(), 5, "leaver that is gone before its lease is")
    assert len(etcd.records()) >= 2
