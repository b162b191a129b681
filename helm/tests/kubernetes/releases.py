"""A release as the API server has it."""

import yaml

from chart import RELEASES, ROOT, VALUES, pods
from cluster import Kubernetes

NAMES = [path.stem for path in VALUES]
# What is in a namespace without a release.
ITS_OWN = {"serviceaccount/default", "configmap/kube-root-ca.crt"}


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


def living(kubernetes: Kubernetes, namespace: str, which: str) -> list[dict]:
    """Pods that nobody deleted."""
    return [pod for pod in kubernetes.get("pods", namespace, which) if "deletionTimestamp" not in pod["metadata"]]


def wanted(kubernetes: Kubernetes, namespace: str, release: str) -> dict[str, int]:
    """Pods of its Deployments and StatefulSets."""
    return {d["metadata"]["name"]: d["spec"]["replicas"] for d in kubernetes.get("deployment,statefulset", namespace, selector(release))}


def made(kubernetes: Kubernetes, namespace: str, release: str) -> dict[str, int]:
    """Pods that the controllers made, by what they made them for."""
    counts = dict.fromkeys(wanted(kubernetes, namespace, release), 0)
    for pod in living(kubernetes, namespace, selector(release)):
        [owner] = pod["metadata"]["ownerReferences"]
        name = owner["name"]
        if owner["kind"] == "ReplicaSet":
            name = name.removesuffix("-" + pod["metadata"]["labels"]["pod-template-hash"])
        counts[name] = counts.get(name, 0) + 1
    return counts


def has_its_pods(kubernetes: Kubernetes, namespace: str, release: str) -> bool:
    return made(kubernetes, namespace, release) == wanted(kubernetes, namespace, release)


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
        template = owner.get("template") or owner.get("leaderWorkerTemplate", {}).get("workerTemplate") or document
        labels = template["metadata"]["labels"]
        name = document["metadata"]["name"]
        found.append({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec})
    return found
