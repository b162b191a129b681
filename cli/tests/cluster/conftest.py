"""Real local clusters, and what their processes say of themselves."""

import json
import os
import pathlib
import re
import signal
import subprocess
import time

import httpx
import pytest

from inference import Inference

ROOT = pathlib.Path(__file__).resolve().parents[3]
TANDEM = ROOT / "target" / "release" / "tandem"
MODEL = ROOT / "models" / "k3-demo"
MODELS = (MODEL, ROOT / "models" / "glm-demo")

# Gauges of things that only a live request may hold.
HELD = (
    "tandem_pool_pages_held",
    "tandem_pool_slots_held",
    "tandem_pool_checkpoints_held",
    "tandem_transfer_staging_bytes",
    "tandem_transfer_sessions_held",
    "tandem_router_permits_held",
)


class Cluster:
    """`tandem up`, from ready to stopped."""

    def __init__(
        self, folder: pathlib.Path, prefill: int = 1, decode: int = 1, more: tuple[str, ...] = (),
        model: pathlib.Path = MODEL,
    ):
        self.model = model
        self.state_file = folder / "state.json"
        self.log = open(folder / "up.log", "wb")
        self.process = subprocess.Popen(
            [TANDEM, "up", "--model", model, "--prefill", str(prefill), "--decode", str(decode),
             "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--state", self.state_file, *more],
            stdout=self.log, stderr=self.log, cwd=ROOT,
        )
        self.wait(lambda: self.state_file.exists() and self.state_file.stat().st_size > 0, 240, "a state file")

    @property
    def state(self) -> dict:
        return json.loads(self.state_file.read_text())

    @property
    def http(self) -> str:
        return f"http://{self.state['router']['http']}"

    def inference(self) -> Inference:
        return Inference(self.state["router"]["grpc"], self.model.name)

    def workers(self, role: str) -> list[dict]:
        return [worker for worker in self.state["workers"] if worker["role"] == role]

    def is_back(self, victim: dict) -> bool:
        """Whether a killed worker is a member again."""
        workers = [worker for worker in self.state["workers"] if worker["name"] == victim["name"]]
        return bool(workers) and workers[0]["pid"] != victim["pid"]

    def metrics(self, address: str) -> dict[str, float]:
        """Sums over labels, by name."""
        found: dict[str, float] = {}
        for line in httpx.get(f"http://{address}/metrics", timeout=10).text.splitlines():
            match = re.match(r"^([a-z_]+)(?:\{[^}]*\})? ([-+0-9.eE]+|NaN)", line)
            if match:
                found[match[1]] = found.get(match[1], 0.0) + float(match[2])
        return found

    def migrations(self) -> float:
        return self.metrics(self.state["router"]["http"])["tandem_router_migrations_total"]

    def addresses(self) -> list[str]:
        return [self.state["router"]["http"], *(worker["http"] for worker in self.state["workers"])]

    def held(self) -> dict[str, float]:
        """What is not 0 of the gauges that must be 0 at rest, over all processes."""
        return {
            f"{address} {name}": value
            for address in self.addresses()
            for name, value in self.metrics(address).items()
            if name in HELD and value != 0
        }

    def wait(self, done, seconds: float, what: str):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert self.process.poll() is None, f"tandem up ended: {self.tail()}"
            result = done()
            if result:
                return result
            time.sleep(0.02)
        raise AssertionError(f"no {what} within {seconds} s: {self.tail()}")

    def wait_idle(self, seconds: float = 1.0):
        """Everything is given back within `seconds`."""
        until = time.monotonic() + seconds
        while (held := self.held()) and time.monotonic() < until:
            time.sleep(0.02)
        assert held == {}

    def tail(self) -> str:
        self.log.flush()
        return pathlib.Path(self.log.name).read_text(errors="replace")[-4000:]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(40)
        finally:
            self.process.kill()
            self.log.close()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """One prefill worker, one decode worker, for all tests that leave them as they were."""
    running = Cluster(tmp_path_factory.mktemp("cluster"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def pairs(tmp_path_factory):
    """Two workers of each role, for tests that kill some and see them back."""
    running = Cluster(tmp_path_factory.mktemp("pairs"), prefill=2, decode=2)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def recorded() -> list[dict]:
    """Prompts and greedy continuations by an outside implementation: `{"prompt_ids", "generated_ids"}` each."""
    return recorded_of(MODEL)


def recorded_of(model: pathlib.Path) -> list[dict]:
    return json.loads((model / "greedy.json").read_text())["prompts"]


def single_process(requests: list[dict], model: pathlib.Path = MODEL, more: tuple[str, ...] = ()) -> list[dict]:
    """What `tandem generate --single-process` makes of each request."""
    done = subprocess.run(
        [TANDEM, "generate", "--single-process", "--model-dir", model, "--json", "--input", "-", *more],
        input="\n".join(map(json.dumps, requests)), capture_output=True, text=True, cwd=ROOT, timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
