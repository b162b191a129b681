"""Releases on a real API server: it takes every object, without a warning, and gives every one back."""

import pathlib

import pytest

from cluster import Kubernetes

VALUES = pathlib.Path(__file__).resolve().parents[1] / "values"
# all kinds that the chart makes where neither cert-manager nor prometheus-operator are
KINDS = ("deployment,statefulset,service,serviceaccount,networkpolicy,poddisruptionbudget,configmap,horizontalpodautoscaler,"
         "leaderworkersets,scaledobjects")
PLAIN = ("--set=monitoring.podMonitor.enabled=false", "--set=monitoring.rules.enabled=false")
NAMED = [path.stem for path in sorted(VALUES.glob("*.yaml")) if path.stem != "tls"]


def specs(kubernetes: Kubernetes, namespace: str, release: str) -> dict[tuple[str, str], dict]:
    found = kubernetes.get(KINDS, namespace, f"app.kubernetes.io/instance={release}")
    return {(d["kind"], d["metadata"]["name"]): d.get("spec", d.get("data", {})) for d in found}


def wanted(kubernetes: Kubernetes, namespace: str, release: str) -> int:
    """Pods of its Deployments and StatefulSets."""
    return sum(d["spec"]["replicas"] for d in kubernetes.get("deployment,statefulset", namespace, f"app.kubernetes.io/instance={release}"))


def has_its_pods(kubernetes: Kubernetes, namespace: str, release: str) -> bool:
    pods = kubernetes.get("pods", namespace, f"app.kubernetes.io/instance={release}")
    living = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return len(living) == wanted(kubernetes, namespace, release)


@pytest.mark.parametrize("name", NAMED)
def test_every_object_is_taken(kubernetes: Kubernetes, name: str) -> None:
    namespace = f"takes-{name}"
    kubernetes.namespace(namespace)
    kubernetes.helm("install", "tandem", namespace, f"--values={VALUES / name}.yaml", *PLAIN)
    assert specs(kubernetes, namespace, "tandem")
    # controllers may make their pods: the namespace refuses those that are not restricted
    if name != "tpu7x":  # asks for a capability more, as its values say
        kubernetes.wait(lambda: has_its_pods(kubernetes, namespace, "tandem"), 120, f"pods of {name}")
    kubernetes.helm("uninstall", "tandem", namespace)
    assert not specs(kubernetes, namespace, "tandem")


def test_a_release_lives(kubernetes: Kubernetes) -> None:
    """Install, upgrade, rollback, uninstall, install again."""
    kubernetes.namespace("life")
    kubernetes.helm("install", "tandem", "life", f"--values={VALUES / 'trial.yaml'}")
    first = specs(kubernetes, "life", "tandem")
    kubernetes.helm("upgrade", "tandem", "life", f"--values={VALUES / 'v6e-16-pair.yaml'}")
    second = specs(kubernetes, "life", "tandem")
    assert ("LeaderWorkerSet", "tandem-decode-v6e-16") in second and ("Deployment", "tandem-decode-cpu") not in second
    assert second["Deployment", "tandem-router"]["replicas"] == 2
    kubernetes.helm("rollback", "tandem", "life", "1")
    assert specs(kubernetes, "life", "tandem") == first
    kubernetes.helm("uninstall", "tandem", "life")
    assert not specs(kubernetes, "life", "tandem")
    kubernetes.helm("install", "tandem", "life")
    kubernetes.wait(lambda: has_its_pods(kubernetes, "life", "tandem"), 120, "pods")
    kubernetes.helm("uninstall", "tandem", "life")


def test_releases_side_by_side(kubernetes: Kubernetes) -> None:
    """Two in one namespace, and one of the same name in another: taking one away takes nothing of the others."""
    for namespace in ("here", "there"):
        kubernetes.namespace(namespace)
    places = [("tandem", "here"), ("another", "here"), ("tandem", "there")]
    for release, namespace in places:
        kubernetes.helm("install", release, namespace, "--set=etcd.mode=chart")
    before = {place: specs(kubernetes, place[1], place[0]) for place in places}
    kubernetes.helm("uninstall", "tandem", "here")
    assert not specs(kubernetes, "here", "tandem")
    for place in places[1:]:
        assert specs(kubernetes, place[1], place[0]) == before[place]


def test_the_scaler_keeps_what_it_did(kubernetes: Kubernetes) -> None:
    """An upgrade leaves the replicas of an autoscaled pool alone."""
    kubernetes.namespace("scaled")
    values = (f"--values={VALUES / 'hpa.yaml'}",)
    kubernetes.helm("install", "tandem", "scaled", *values)
    kubernetes.run("kubectl", "scale", "deployment", "tandem-decode-cpu", "--replicas=5", "--namespace=scaled")
    kubernetes.helm("upgrade", "tandem", "scaled", *values, "--set=logs.filter=debug")
    assert specs(kubernetes, "scaled", "tandem")["Deployment", "tandem-decode-cpu"]["replicas"] == 5
