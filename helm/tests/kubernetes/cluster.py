"""A real kube-apiserver and controller manager on a real etcd. There are no nodes: pods are made and stay pending."""

import json
import os
import pathlib
import socket
import subprocess
import time
from collections.abc import Callable

from chart import CHART, ROOT

TOOLS = ROOT / ".tools" / "kubernetes"
CRDS = sorted((ROOT / "helm" / "tests" / "crds").glob("*.yaml"))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


class Kubernetes:
    """Its processes, and Helm and kubectl as its administrator."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen] = []
        etcd, peer, secure = (free_port() for _ in range(3))
        binary = subprocess.run([ROOT / "scripts" / "etcd.sh"], capture_output=True, text=True, check=True).stdout.strip()
        self.start(
            binary, f"--data-dir={folder}/etcd", "--unsafe-no-fsync",
            f"--listen-client-urls=http://127.0.0.1:{etcd}", f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}", f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
        )
        key = folder / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        (folder / "tokens.csv").write_text("administrator,administrator,administrator,system:masters\n")
        self.start(
            TOOLS / "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{etcd}", "--bind-address=127.0.0.1", f"--secure-port={secure}",
            f"--cert-dir={folder}/certificates", f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc", f"--token-auth-file={folder}/tokens.csv",
            "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/16", "--endpoint-reconciler-type=none",
        )
        self.config = folder / "config"
        self.config.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": f"https://127.0.0.1:{secure}", "insecure-skip-tls-verify": True}}],
            "users": [{"name": "it", "user": {"token": "administrator"}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }))
        self.wait(lambda: self.run("kubectl", "get", "--raw=/readyz", check=False).returncode == 0, 300, "an API")
        self.start(
            TOOLS / "kube-controller-manager", f"--kubeconfig={self.config}", "--bind-address=127.0.0.1", f"--secure-port={free_port()}",
            f"--cert-dir={folder}/certificates", f"--service-account-private-key-file={key}", "--leader-elect=false",
            "--use-service-account-credentials=false",
        )
        for crd in CRDS:
            self.run("kubectl", "apply", "--server-side", f"--filename={crd}")
        self.run("kubectl", "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")

    def start(self, *command: str | pathlib.Path) -> None:
        log = open(self.folder / f"{pathlib.Path(command[0]).name}.log", "wb")
        self.processes.append(subprocess.Popen(command, stdout=log, stderr=log))

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(30)

    def run(self, program: str, *args: str | pathlib.Path, check: bool = True, stdin: str | None = None) -> subprocess.CompletedProcess:
        environment = os.environ | {"KUBECONFIG": str(self.config), "HOME": str(self.folder)}
        done = subprocess.run([TOOLS / program, *args], env=environment, input=stdin, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, f"{program} {args}: {done.stderr}"
        return done

    def get(self, kinds: str, namespace: str, selector: str = "") -> list[dict]:
        found = self.run("kubectl", "get", kinds, f"--namespace={namespace}", f"--selector={selector}", "--output=json")
        return json.loads(found.stdout)["items"]

    def namespace(self, name: str) -> None:
        """Which lets restricted pods in, and no others."""
        labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        self.run("kubectl", "apply", "--filename=-", stdin=json.dumps(document))

    def helm(self, verb: str, release: str, namespace: str, *args: str | pathlib.Path) -> subprocess.CompletedProcess:
        chart = [CHART] if verb in ("install", "upgrade", "template") else []
        done = self.run("helm", verb, release, *chart, f"--namespace={namespace}", *args)
        # what the API server has against an object that it takes
        assert "warning" not in done.stderr.lower(), done.stderr
        return done

    def wait(self, what: Callable[[], bool], seconds: float, name: str) -> None:
        until = time.monotonic() + seconds
        while not what():
            dead = [process.args[0] for process in self.processes if process.poll() is not None]
            assert not dead and time.monotonic() < until, f"{name}: did not come in {seconds} s; ended: {dead}; logs in {self.folder}"
            time.sleep(0.5)

