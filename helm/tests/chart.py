"""The chart, rendered by Helm."""

import pathlib
import subprocess

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "tandem"
HELM = ROOT / ".tools" / "kubernetes" / "helm"
BINARIES = ROOT / "target" / "release"
VALUES = sorted((ROOT / "helm" / "tests" / "values").glob("*.yaml"))
# By file of values, where it is not `tandem`: as long as Helm takes them, with what a Service's name may not have; and a number.
RELEASES = {"odd-names": "9-very.long-release-name-that-goes-on-up-to-the-limits"[:53], "numerals": "1e3"}


def template(*args: str | pathlib.Path, release: str = "tandem", namespace: str = "serving") -> subprocess.CompletedProcess:
    command = [HELM, "template", release, CHART, "--namespace", namespace, "--kube-version", "1.37.0", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def objects(rendered: subprocess.CompletedProcess) -> list[dict]:
    assert rendered.returncode == 0, rendered.stderr
    return [document for document in yaml.safe_load_all(rendered.stdout) if document]


def pods(documents: list[dict]) -> list[tuple[dict, dict]]:
    """Every object that has a pod's spec, with that spec."""
    found = []
    for document in documents:
        if document["kind"] == "Pod":
            found.append((document, document["spec"]))
        elif document["kind"] == "LeaderWorkerSet":
            found.append((document, document["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]))
        elif "template" in document.get("spec", {}):
            found.append((document, document["spec"]["template"]["spec"]))
    return found


def one(documents: list[dict], kind: str, name: str) -> dict:
    [found] = [d for d in documents if d["kind"] == kind and d["metadata"]["name"] == name]
    return found


class Rendered:
    """What each file of values comes to."""

    def __init__(self) -> None:
        self.seen: dict[str, list[dict]] = {}

    def __call__(self, name: str) -> list[dict]:
        if name not in self.seen:
            path = ROOT / "helm" / "tests" / "values" / f"{name}.yaml"
            self.seen[name] = objects(template("--values", path, release=RELEASES.get(name, "tandem")))
        return self.seen[name]
