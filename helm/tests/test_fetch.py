"""The container that fetches a checkpoint, its very arguments, against a real S3 server."""

import pathlib
import socket
import subprocess
import sys
import time

import pytest

from chart import objects, pods, template

RCLONE = pathlib.Path(sys.executable).parent / "rclone"
KEYS = {"AWS_ACCESS_KEY_ID": "a-key-for-tests", "AWS_SECRET_ACCESS_KEY": "a-secret-for-tests"}
FILES = {"config.json": b"{}", "tokenizer.json": b"[]", "model-00001.safetensors": bytes(range(256)) * 4096}


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("store")
    for name, content in FILES.items():
        path = root / "models" / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [RCLONE, "serve", "s3", root, f"--addr=127.0.0.1:{port}", f"--auth-key={','.join(KEYS.values())}", "--config="]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            until = time.monotonic() + 30
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    assert server.poll() is None and time.monotonic() < until, "no S3 server"
                    time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def fetch(source: str, endpoint: str, component: str, into: pathlib.Path) -> subprocess.CompletedProcess:
    store = {"model.source": source, "model.fetch.s3.endpoint": endpoint, "model.fetch.s3.provider": "Rclone"}
    documents = objects(template(*[flag for key, value in store.items() for flag in ("--set", f"{key}={value}")]))
    [spec] = [s for d, s in pods(documents) if d["metadata"]["name"] == component]
    [container] = spec["initContainers"]
    args = [str(into) if arg == "/model" else f"--cache-dir={into}.cache" if arg == "--cache-dir=/tmp" else
            "--retries=1" if arg.startswith("--retries=") else "--retries-sleep=0" if arg.startswith("--retries-sleep=") else arg
            for arg in container["args"]]
    environment = {entry["name"]: entry["value"] for entry in container["env"]} | KEYS
    return subprocess.run([RCLONE, *args], env=environment, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(("component", "files"), [
    ("tandem-decode-cpu", set(FILES)),
    ("tandem-router", {"config.json", "tokenizer.json"}),
])
def test_it_arrives(endpoint: str, tmp_path: pathlib.Path, component: str, files: set[str]) -> None:
    into = tmp_path / "model"
    done = fetch("s3://models/folder", endpoint, component, into)
    assert done.returncode == 0, done.stderr
    assert {path.name: path.read_bytes() for path in into.iterdir()} == {name: FILES[name] for name in files}


def test_a_bucket_that_is_not_there_ends_the_pod(endpoint: str, tmp_path: pathlib.Path) -> None:
    done = fetch("s3://elsewhere/folder", endpoint, "tandem-decode-cpu", tmp_path / "model")
    assert done.returncode != 0, done.stderr
