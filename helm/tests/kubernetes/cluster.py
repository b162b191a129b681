"""A real etcd, kube-apiserver, controller manager and scheduler. No kubelet: pods are made and placed, and nothing runs in them."""

import json
import os
import pathlib
import socket
import subprocess
import time
from collections.abc import Callable

from chart import CHART, ROOT

TOOLS = ROOT / ".tools" / "kubernetes"
CRDS = ROOT / "helm" / "tests" / "crds"
# Kinds that only a schema is here of: the API server takes these as they are.
UNCHECKED = {
    "certificates.cert-manager.io": "Certificate", "issuers.cert-manager.io": "Issuer",
    "podmonitors.monitoring.coreos.com": "PodMonitor", "prometheusrules.monitoring.coreos.com": "PrometheusRule",
}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def unchecked(name: str, kind: str) -> dict:
    """A CRD of a kind whose objects have any content."""
    plural, _, group = name.partition(".")
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": anything}],
        },
    }


class Kubernetes:
    """Its processes, and Helm and kubectl as its administrator."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen] = []
        self.secure = free_port()

    def begin(self) -> None:
        etcd, peer = free_port(), free_port()
        binary = subprocess.run([ROOT / "scripts" / "etcd.sh"], capture_output=True, text=True, check=True).stdout.strip()
        self.start(
            binary, f"--data-dir={self.folder}/etcd", "--unsafe-no-fsync",
            f"--listen-client-urls=http://127.0.0.1:{etcd}", f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}", f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
        )
        key = self.folder / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        tokens = self.folder / "tokens.csv"
        tokens.write_text("administrator,administrator,administrator,system:masters\ntenant,tenant,tenant\n")
        self.start(
            TOOLS / "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{etcd}", "--bind-address=127.0.0.1",
            f"--secure-port={self.secure}", f"--cert-dir={self.folder}/certificates", f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}", "--service-account-issuer=https://kubernetes.default.svc",
            f"--token-auth-file={tokens}", "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/16",
            "--endpoint-reconciler-type=none",
        )
        for user in ("administrator", "tenant"):
            self.config(user).write_text(json.dumps({
                "apiVersion": "v1", "kind": "Config", "current-context": "it",
                "clusters": [{"name": "it", "cluster": {"server": f"https://127.0.0.1:{self.secure}", "insecure-skip-tls-verify": True}}],
                "users": [{"name": "it", "user": {"token": user}}],
                "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            }))
        self.wait(lambda: self.run("kubectl", "get", "--raw=/readyz", check=False).returncode == 0, 300, "an API")
        common = (f"--kubeconfig={self.config('administrator')}", "--bind-address=127.0.0.1", f"--cert-dir={self.folder}/certificates",
                  "--leader-elect=false")
        self.start(
            TOOLS / "kube-controller-manager", *common, f"--secure-port={free_port()}", f"--service-account-private-key-file={key}",
            # a node is what a test says it is, though no kubelet says that it lives
            "--node-monitor-grace-period=24h", "--horizontal-pod-autoscaler-sync-period=1s",
        )
        self.start(TOOLS / "kube-scheduler", *common, f"--secure-port={free_port()}")
        for crd in sorted(CRDS.glob("*.yaml")):
            self.run("kubectl", "apply", "--server-side", f"--filename={crd}")
        for name, kind in UNCHECKED.items():
            self.apply(unchecked(name, kind))
        self.run("kubectl", "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")

    def config(self, user: str) -> pathlib.Path:
        return self.folder / f"{user}.config"

    def start(self, *command: str | pathlib.Path) -> None:
        with open(self.folder / f"{pathlib.Path(command[0]).name}.log", "wb") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log))

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def run(
        self, program: str, *args: str | pathlib.Path, check: bool = True, stdin: str | None = None, user: str = "administrator",
    ) -> subprocess.CompletedProcess:
        environment = os.environ | {"KUBECONFIG": str(self.config(user)), "HOME": str(self.folder)}
        done = subprocess.run([TOOLS / program, *args], env=environment, input=stdin, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, f"{program} {args}: {done.stderr}"
        return done

    def helm(self, verb: str, release: str, namespace: str, *args: str | pathlib.Path, user: str = "administrator") -> str:
        """What it says; the API server must have nothing against what it takes."""
        chart = [CHART] if verb in ("install", "upgrade") else []
        done = self.run("helm", verb, release, *chart, f"--namespace={namespace}", *args, user=user)
        assert not done.stderr, done.stderr
        return done.stdout

    def apply(self, *documents: dict) -> None:
        self.run("kubectl", "apply", "--server-side", "--filename=-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))

    def get(self, kinds: str, namespace: str, selector: str = "") -> list[dict]:
        found = self.run("kubectl", "get", kinds, f"--namespace={namespace}", f"--selector={selector}", "--output=json")
        return json.loads(found.stdout)["items"]

    def one(self, kind: str, namespace: str, name: str) -> dict:
        return json.loads(self.run("kubectl", "get", kind, name, f"--namespace={namespace}", "--output=json").stdout)

    def namespace(self, name: str) -> str:
        """Which lets restricted pods in, and no others."""
        labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        self.wait(lambda: bool(self.get("serviceaccount", name)), 60, f"the default account of {name}")
        return name

    def wait(self, what: Callable[[], bool], seconds: float, name: str) -> None:
        until = time.monotonic() + seconds
        while not what():
            dead = [process.args[0] for process in self.processes if process.poll() is not None]
            assert not dead and time.monotonic() < until, f"{name}: did not come in {seconds} s; ended: {dead}; logs in {self.folder}"
            time.sleep(0.3)
