"""The SDKs' runners, each a process that answers lines of JSON."""

import base64
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / ".tools" / "sdk" / "bin"
RUNNERS = {
    "python": [sys.executable, "sdk/python/conformance.py"],
    "python-aio": [sys.executable, "sdk/python/conformance.py", "aio"],
    "typescript": [str(TOOLS / "node"), "sdk/typescript/conformance.mjs"],
    "go": [str(TOOLS / "conformance-go")],
    "rust": ["target/release/examples/conformance"],
}
EXAMPLES = {
    "python": [sys.executable, "sdk/python/examples/generate.py"],
    "typescript": [str(TOOLS / "node"), "sdk/typescript/examples/generate.mjs"],
    "go": [str(TOOLS / "generate-go")],
    "rust": ["target/release/examples/generate"],
}


class Sdk:
    """One SDK's runner."""

    def __init__(self, name: str):
        self.name = name
        assert (ROOT / RUNNERS[name][0]).exists(), "make test-sdk builds the runners"
        self.process = subprocess.Popen(RUNNERS[name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)

    def ask(self, case: dict) -> dict:
        """What the SDK makes of a case; the request in it is a message."""
        line = dict(case, request=base64.b64encode(case["request"].SerializeToString()).decode())
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"the runner of {self.name} ended"
        return json.loads(answer)

    def stop(self):
        self.process.stdin.close()
        self.process.wait(10)
