"""A real etcd server, spoken to over its JSON gateway."""

import base64
import json
import pathlib
import shutil
import signal
import socket
import subprocess

import httpx

ROOT = pathlib.Path(__file__).resolve().parents[3]


class Etcd:
    def __init__(self, folder: pathlib.Path):
        found = subprocess.run([ROOT / "scripts" / "etcd.sh"], stdout=subprocess.PIPE, check=True, text=True)
        self.program = found.stdout.strip()
        self.data, self.log = folder / "data", open(folder / "etcd.log", "ab")
        self.url, self.peer = (f"http://127.0.0.1:{free()}" for _ in range(2))
        self.run()

    def run(self):
        self.process = subprocess.Popen(
            [self.program, "--name=default", "--unsafe-no-fsync", "--log-level=warn", f"--data-dir={self.data}",
             f"--listen-client-urls={self.url}", f"--advertise-client-urls={self.url}", f"--listen-peer-urls={self.peer}",
             f"--initial-advertise-peer-urls={self.peer}", f"--initial-cluster=default={self.peer}"],
            stdout=self.log, stderr=self.log,
        )

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def wipe(self):
        """Begins anew with nothing in it."""
        self.kill()
        shutil.rmtree(self.data)
        self.run()

    def stop(self):
        self.kill()
        self.log.close()

    def call(self, name: str, **fields) -> dict:
        answer = httpx.post(f"{self.url}/v3/kv/{name}", json=fields, timeout=10)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def put(self, key: str, value: str) -> int:
        return int(self.call("put", key=text(key), value=text(value))["header"]["revision"])

    def compact(self, revision: int):
        self.call("compaction", revision=revision, physical=True)

    def records(self) -> list[dict]:
        """Every worker that is registered; none while etcd does not answer."""
        begin = "/tandem/workers/"
        try:
            found = self.call("range", key=text(begin), range_end=text(begin[:-1] + "0"))
        except (httpx.HTTPError, AssertionError):
            return []
        return [json.loads(base64.b64decode(entry["value"]))["record"] for entry in found.get("kvs", [])]


def text(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def free() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]
