"""Single programs of a cluster, where a test is their supervisor: each with its addresses, what it warned of, and its end."""

import json
import pathlib
import signal
import subprocess
import threading

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAMS = {role: ROOT / "target" / "release" / f"tandem-{role}" for role in ("router", "prefill-worker", "decode-worker")}
# What a process logs once it is of use, and once a worker takes requests.
READY, JOINED = ("listening", "ready"), "joined"


class Process:
    """A running program; it does not outlive its test."""

    def __init__(self, role: str, *flags):
        self.addresses, self.complaints = {}, []
        self.ready, self.joined = threading.Event(), threading.Event()
        self.process = subprocess.Popen(
            [PROGRAMS[role], *map(str, flags), "--log-json", "--stop-with-stdin"],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=ROOT, text=True,
        )
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def listen(self):
        for line in self.process.stderr:
            try:
                said = json.loads(line)
            except ValueError:
                self.complaints.append(line.rstrip())
                continue
            if said["level"] in ("WARN", "ERROR"):
                self.complaints.append(line.rstrip())
            message = said["fields"].get("message")
            if message in READY and "grpc" in said["fields"]:
                self.addresses = said["fields"]
                self.ready.set()
            elif message == JOINED:
                self.joined.set()
        # whoever waits for what will not come any more is told now
        self.ready.set()
        self.joined.set()

    def wait(self, event: threading.Event, seconds: float = 240) -> "Process":
        assert event.wait(seconds) and self.is_running(), f"{self.process.args[0]} is not there: {self.complaints[-20:]}"
        return self

    def is_running(self) -> bool:
        return self.process.poll() is None

    def terminate(self):
        """Asks it to drain, as the deletion of its pod does."""
        self.process.send_signal(signal.SIGTERM)

    def ended(self, seconds: float = 60) -> int:
        try:
            return self.process.wait(seconds)
        finally:
            self.kill()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.listener.join()
        self.process.stdin.close()
        self.process.stderr.close()
