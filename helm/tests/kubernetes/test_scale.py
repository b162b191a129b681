"""Whatever scales a pool has its way: the scale subresource, the HPA controller, and upgrades in between."""

import json

from cluster import Kubernetes
from releases import has_its_pods, values

DEPLOYMENT = "apps/v1", "deployment"
SLICES = "leaderworkerset.x-k8s.io/v1", "leaderworkerset"


def replicas(kubernetes: Kubernetes, namespace: str, kind: tuple[str, str], name: str) -> int:
    return kubernetes.one(kind[1], namespace, name)["spec"]["replicas"]


def scale(kubernetes: Kubernetes, namespace: str, kind: tuple[str, str], name: str, count: int) -> None:
    """As scalers do."""
    raw = f"--raw=/apis/{kind[0]}/namespaces/{namespace}/{kind[1]}s/{name}/scale"
    found = json.loads(kubernetes.run("kubectl", "get", raw).stdout)
    kubernetes.run("kubectl", "replace", raw, "--filename=-", stdin=json.dumps(found | {"spec": {"replicas": count}}))


def test_both_kinds_of_pools_scale(kubernetes: Kubernetes) -> None:
    """To nothing and back; an upgrade leaves alone what was scaled."""
    namespace = kubernetes.namespace("scales")
    kubernetes.helm("install", "tandem", namespace, values("keda"))
    for kind, name in ((DEPLOYMENT, "tandem-prefill-v6e-4"), (SLICES, "tandem-decode-elastic")):
        assert replicas(kubernetes, namespace, kind, name) == 1
        for count in (3, 0, 2):
            scale(kubernetes, namespace, kind, name, count)
            assert replicas(kubernetes, namespace, kind, name) == count
    kubernetes.helm("upgrade", "tandem", namespace, values("keda"), "--set=logs.filter=debug")
    for kind, name in ((DEPLOYMENT, "tandem-prefill-v6e-4"), (SLICES, "tandem-decode-elastic")):
        assert replicas(kubernetes, namespace, kind, name) == 2
    kubernetes.helm("uninstall", "tandem", namespace)


def test_the_hpa_controller_scales(kubernetes: Kubernetes) -> None:
    """To what a pool has at least; beyond, it takes metrics, which nobody serves here."""
    namespace = kubernetes.namespace("hpa")
    kubernetes.helm("install", "tandem", namespace, values("hpa"))
    kubernetes.wait(lambda: replicas(kubernetes, namespace, DEPLOYMENT, "tandem-decode-cpu") == 2, 60, "the least number")
    kubernetes.wait(lambda: has_its_pods(kubernetes, namespace, "tandem"), 60, "pods")
    for name, reason in (("tandem-decode-cpu", "FailedGetPodsMetric"), ("tandem-prefill-cpu", "FailedGetResourceMetric")):
        def said() -> dict[str, tuple[str, str]]:
            status = kubernetes.one("hpa", namespace, name).get("status", {})
            return {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions", [])}
        kubernetes.wait(lambda: said().get("ScalingActive") == ("False", reason), 60, f"{name}: {reason}")
        assert said()["AbleToScale"][0] == "True"
    # an upgrade leaves alone what was scaled
    kubernetes.run("kubectl", "scale", "deployment", "tandem-decode-cpu", "--replicas=5", f"--namespace={namespace}")
    kubernetes.helm("upgrade", "tandem", namespace, values("hpa"), "--set=logs.filter=debug")
    assert replicas(kubernetes, namespace, DEPLOYMENT, "tandem-decode-cpu") == 5
    kubernetes.helm("uninstall", "tandem", namespace)


def test_autoscaling_comes_and_goes(kubernetes: Kubernetes) -> None:
    """A pool that is autoscaled begins again at its least number; without, its replicas are what the values say."""
    namespace = kubernetes.namespace("comes-and-goes")
    fixed = f"--set-json=pools.decode={json.dumps([{'name': 'cpu', 'replicas': 3}])}"
    kubernetes.helm("install", "tandem", namespace, fixed)
    kubernetes.helm("upgrade", "tandem", namespace, values("hpa"))
    kubernetes.wait(lambda: replicas(kubernetes, namespace, DEPLOYMENT, "tandem-decode-cpu") == 2, 60, "the least number")
    scale(kubernetes, namespace, DEPLOYMENT, "tandem-decode-cpu", 4)
    kubernetes.helm("upgrade", "tandem", namespace, fixed)
    assert replicas(kubernetes, namespace, DEPLOYMENT, "tandem-decode-cpu") == 3
    kubernetes.helm("uninstall", "tandem", namespace)
