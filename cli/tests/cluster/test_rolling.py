"""Every process of a cluster is restarted, one after another, under load: no request fails, every answer is right.

Two routers share an etcd; clients are the Python SDK's, which knows both by one name. SIGTERM and another start, as a rolling
update does it.
"""

import concurrent.futures
import random
import sys
import threading
import time

import httpx
import pytest

from conftest import MODEL, ROOT
from etcd import Etcd, free
from processes import Process

sys.path.insert(0, str(ROOT / "sdk" / "python" / "src"))
import tandem  # noqa: E402
import tandem.channel  # noqa: E402

CLIENTS = 4
LONG = 2500
GRACE = 180
GREEDY = {"temperature": 0, "ignore_eos": True}


def within(seconds: float, done, what: str):
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, f"no {what} within {seconds} s"
        time.sleep(0.1)


class Fleet:
    """Two routers and two workers a role."""

    def __init__(self, etcd: str):
        common = ("--model", MODEL, "--etcd", etcd)
        self.flags = {
            f"router-{index}": ("router", *common, "--grace", GRACE, "--grpc", f"127.0.0.1:{free()}", "--http", "127.0.0.1:0")
            for index in range(2)
        } | {
            f"{role}-{index}": (f"{role}-worker", *common, "--grace", GRACE, "--name", f"{role}-{index}", "--threads", 1)
            for role in ("prefill", "decode") for index in range(2)
        }  # fmt: skip
        self.running, self.http = {}, httpx.Client(timeout=10)
        for name in self.flags:
            self.start(name)
        for name in self.names("router"):
            self.running[name].wait(self.running[name].ready)
        for name in [*self.names("prefill"), *self.names("decode"), *self.names("router")]:
            self.await_use(name)

    def names(self, role: str) -> list[str]:
        return [name for name in self.flags if name.startswith(role)]

    def start(self, name: str):
        self.running[name] = Process(*self.flags[name])

    def await_use(self, name: str):
        process = self.running[name]
        process.wait(process.ready)
        if name.startswith("router"):
            within(30, lambda: self.answers(process, "/ready"), f"{name} that is ready")
        else:
            process.wait(process.joined)
            within(30, lambda: all(self.knows(router, name) for router in self.names("router")), f"{name} at both routers")

    def answers(self, process: Process, path: str) -> bool:
        return self.http.get(f"http://{process.addresses['http']}{path}").status_code == 200

    def status(self, router: str) -> dict:
        return self.http.get(f"http://{self.running[router].addresses['http']}/status").json()

    def knows(self, router: str, worker: str) -> bool:
        """Whether a router places requests on a worker as it runs now."""
        ours = self.running[worker].addresses["grpc"]
        status = self.status(router)
        seen = [each for each in status["prefill"] + status["decode"] if each["name"] == worker]
        return any(each["address"].removeprefix("http://") == ours and not each["draining"] for each in seen)

    def slots_used(self) -> list[list[int]]:
        """Of each decode worker, as each router knows it."""
        return [[worker["slots"]["used"] for worker in self.status(name)["decode"]] for name in self.names("router")]

    def restart(self, *names: str):
        for name in names:
            self.running[name].terminate()
        for name in names:
            assert self.running[name].ended(240) == 0, self.running[name].complaints
            self.start(name)
        for name in sorted(names, key=lambda name: not name.startswith("router")):
            self.await_use(name)

    def stop(self):
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.ended()
        self.http.close()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    etcd = Etcd(tmp_path_factory.mktemp("etcd"))
    try:
        running = Fleet(etcd.url)
        yield running
        running.stop()
    finally:
        etcd.stop()


@pytest.fixture
def client(fleet, monkeypatch):
    """Of a name that stands for both routers."""
    both = ",".join(fleet.running[name].addresses["grpc"] for name in fleet.names("router"))
    monkeypatch.setattr(tandem.channel.Address, "target", property(lambda _: f"ipv4:{both}"))
    monkeypatch.setattr(tandem.channel, "OPTIONS", [*tandem.channel.OPTIONS, ("grpc.default_authority", "routers")])
    with tandem.Client("routers:50051") as client:
        yield client


def asked(ids: list[int], tokens: int) -> tandem.GenerateRequest:
    sampling = tandem.Sampling(max_tokens=tokens, **GREEDY)
    return tandem.GenerateRequest(model=MODEL.name, tokens=tandem.Tokens(ids=ids), sampling=sampling)


class Load:
    """Clients that ask until the end of the `with`, which fails with the first of them."""

    def __init__(self, client: tandem.Client, recorded: list[dict]):
        self.cases = [(asked(entry["prompt_ids"], len(entry["generated_ids"])), entry["generated_ids"]) for entry in recorded]
        self.client, self.answers, self.over = client, 0, threading.Event()

    def ask_on(self, number: int):
        rng = random.Random(number)
        try:
            while not self.over.is_set():
                request, right = rng.choice(self.cases)
                assert list(self.client.generate(request, timeout=120).collect().token_ids) == right
                self.answers += 1
        finally:
            self.over.set()

    def __enter__(self):
        self.pool = concurrent.futures.ThreadPoolExecutor(CLIENTS)
        self.asking = [self.pool.submit(self.ask_on, number) for number in range(CLIENTS)]
        return self

    def goes_on(self):
        """Every client has had an answer since now, about."""
        before = self.answers
        within(60, lambda: self.over.is_set() or self.answers >= before + CLIENTS, "answers")
        assert not self.over.is_set(), "a request failed"

    def __exit__(self, *_):
        self.over.set()
        for client in self.asking:
            client.result(150)
        self.pool.shutdown()


def test_a_rolling_restart_of_all_processes_fails_no_request(fleet, client, recorded):
    with Load(client, recorded) as load:
        for name in fleet.names("prefill") + fleet.names("decode") + fleet.names("router"):
            load.goes_on()
            fleet.restart(name)
        load.goes_on()
    print(f"{load.answers} answers")


def test_a_worker_and_a_router_that_are_told_to_end_end_long_answers_first(fleet, client, recorded):
    """The same long answer is asked for twice, so that both decode workers have one: the one that goes says what the other says."""
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        generations = []
        for _ in range(2):
            generations.append(client.generate(asked([11, 12, 13], LONG), timeout=240))
            within(60, lambda: all(sum(used) == len(generations) for used in fleet.slots_used()), "long answer that has begun")
        assert fleet.slots_used() == [[1, 1], [1, 1]]
        [router, *_] = [name for name in fleet.names("router") if fleet.status(name)["router"]["in_flight"]]
        answers = [pool.submit(generation.collect) for generation in generations]
        with Load(client, recorded) as load:
            leaving = pool.submit(fleet.restart, "decode-0", router)
            while not all(answer.done() for answer in answers):
                load.goes_on()
            leaving.result(240)
        first, second = [answer.result().token_ids for answer in answers]
    assert len(first) == LONG and first == second
