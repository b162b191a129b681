"""A release as the API server has it."""

import yaml

from chart import RELEASES, ROOT, VALUES, pods
from cluster import Kubernetes

NAMES = [path.stem for path in VALUES]
# What is in a namespace without a release.
ITS_OWN = {"serviceaccount/default"}


def values(name: str) -> str:
    return f"--values={ROOT}/helm/tests/values/{name}.yaml"


def release_name(name: str) -> str:
    return RELEASES.get(name, "tandem")


def sent(kubernetes: Kubernetes, what: str, release: str, namespace: str) -> list[dict]:
    """Helm's `manifest` or `hooks` of a release."""
    done = kubernetes.run("helm", "get", what, release, f"--namespace={namespace}")
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def selector(release: str) -> str:
    return f"app.kubernetes.io/instance={release}"


def left(kubernetes: Kubernetes, namespace: str) -> set[str]:
    """All that is in a namespace, but what is in every one."""
    kinds = kubernetes.run("kubectl", "api-resources", "--namespaced", "--verbs=list", "--output=name").stdout.split()
    kinds = [kind for kind in kinds if not kind.startswith("events")]
    found = kubernetes.run("kubectl", "get", ",".join(kinds), f"--namespace={namespace}", "--output=name").stdout.split()
    return set(found) - ITS_OWN


def as_pods(documents: list[dict]) -> list[dict]:
    """A pod of each object that makes some: what its controller would send."""
    found = []
    for document, spec in pods(documents):
        owner = document["spec"]
        claims = [{"name": claim["metadata"]["name"], "emptyDir": {}} for claim in owner.get("volumeClaimTemplates", [])]
        template = owner.get("template") or owner.get("leaderWorkerTemplate", {}).get("workerTemplate") or document
        labels = template["metadata"]["labels"]
        name = document["metadata"]["name"]
        found.append({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec | {"volumes": spec.get("volumes", []) + claims}})
    return found
