"""Releases come, change, go back, go, and come again, beside each other."""

import pytest

from cluster import Kubernetes
from releases import has_its_pods, left, selector, sent, values


def specs(kubernetes: Kubernetes, namespace: str, release: str) -> dict[tuple[str, str], dict]:
    """What the server has of what Helm sent."""
    kinds = ("deployment,statefulset,service,serviceaccount,networkpolicy,poddisruptionbudget,configmap,horizontalpodautoscaler,"
             "leaderworkersets,scaledobjects,certificates,issuers")
    found = kubernetes.get(kinds, namespace, selector(release))
    return {(d["kind"], d["metadata"]["name"]): d.get("spec", d.get("data", {})) for d in found}


def test_a_release_lives(kubernetes: Kubernetes) -> None:
    """Install, upgrade, rollback, uninstall, install again."""
    namespace = kubernetes.namespace("life")
    kubernetes.helm("install", "tandem", namespace, values("trial"))
    first = specs(kubernetes, namespace, "tandem")
    assert first.keys() == {(d["kind"], d["metadata"]["name"]) for d in sent(kubernetes, "manifest", "tandem", namespace)}
    kubernetes.helm("upgrade", "tandem", namespace, values("v6e-16-pair"))
    second = specs(kubernetes, namespace, "tandem")
    assert second.keys() == {(d["kind"], d["metadata"]["name"]) for d in sent(kubernetes, "manifest", "tandem", namespace)}
    assert ("LeaderWorkerSet", "tandem-decode-v6e-16") in second and ("Deployment", "tandem-decode-cpu") not in second
    assert second["Deployment", "tandem-router"]["replicas"] == 2
    kubernetes.helm("rollback", "tandem", namespace, "1")
    assert specs(kubernetes, namespace, "tandem") == first
    kubernetes.wait(lambda: has_its_pods(kubernetes, namespace, "tandem"), 120, "pods")
    kubernetes.helm("uninstall", "tandem", namespace)
    kubernetes.wait(lambda: not left(kubernetes, namespace), 60, "an empty namespace")
    kubernetes.helm("install", "tandem", namespace)
    kubernetes.wait(lambda: has_its_pods(kubernetes, namespace, "tandem"), 120, "pods")
    kubernetes.helm("uninstall", "tandem", namespace)


def unscaled(found: dict[tuple[str, str], dict]) -> dict[tuple[str, str], dict]:
    """Without the replicas that a HorizontalPodAutoscaler sets meanwhile."""
    scaled = {("Deployment", name) for kind, name in found if kind == "HorizontalPodAutoscaler"}
    return {key: {k: v for k, v in spec.items() if k != "replicas" or key not in scaled} for key, spec in found.items()}


CHANGES = [("trial", "tls"), ("tls", "external-etcd"), ("hpa", "trial"), ("hpa", "keda"), ("keda", "many-pools"), ("tls-given", "trial")]


@pytest.mark.parametrize(("old", "new"), CHANGES, ids=["-to-".join(change) for change in CHANGES])
def test_a_release_changes_and_changes_back(kubernetes: Kubernetes, old: str, new: str) -> None:
    namespace = kubernetes.namespace(f"from-{old}-to-{new}")
    kubernetes.helm("install", "tandem", namespace, values(old))
    before = unscaled(specs(kubernetes, namespace, "tandem"))
    kubernetes.helm("upgrade", "tandem", namespace, values(new))
    kubernetes.helm("rollback", "tandem", namespace)
    assert unscaled(specs(kubernetes, namespace, "tandem")) == before
    kubernetes.helm("uninstall", "tandem", namespace)


def test_releases_side_by_side(kubernetes: Kubernetes) -> None:
    """Two in one namespace, and one of the same name in another: taking one away takes nothing of the others."""
    places = [("tandem", kubernetes.namespace("here")), ("another", "here"), ("tandem", kubernetes.namespace("there"))]
    for release, namespace in places:
        kubernetes.helm("install", release, namespace, "--set=etcd.mode=chart")
    for release, namespace in places:
        kubernetes.wait(lambda: has_its_pods(kubernetes, namespace, release), 120, f"pods of {release}")
    before = {place: specs(kubernetes, place[1], place[0]) for place in places}
    pods = {place: {p["metadata"]["uid"] for p in kubernetes.get("pods", place[1], selector(place[0]))} for place in places}
    assert all(len(uids) == 4 for uids in pods.values()) and len(set.union(*pods.values())) == 12
    kubernetes.helm("uninstall", *places[0])
    assert not specs(kubernetes, "here", "tandem")
    for place in places[1:]:
        assert specs(kubernetes, place[1], place[0]) == before[place]
        assert {p["metadata"]["uid"] for p in kubernetes.get("pods", place[1], selector(place[0]))} == pods[place]
        kubernetes.helm("uninstall", *place)
