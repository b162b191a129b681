"""Whatever scales a pool has its way: the scale subresource, the HPA controller, and upgrades in between."""

import json

from cluster import Kubernetes
from releases import has_its_pods, values


def replicas(kubernetes: Kubernetes, namespace: str, kind: str, name: str) -> int:
    return kubernetes.one(kind, namespace, name)["spec"]["replicas"]


def test_both_kinds_of_pools_scale(kubernetes: Kubernetes) -> None:
    """As KEDA does it: through /scale, to nothing and back."""
    namespace = kubernetes.namespace("scales")
    kubernetes.helm("install", "tandem", namespace, values("keda"))
    for kind, path, name in (("deployment", "apps/v1", "tandem-prefill-v6e-4"),
                             ("leaderworkerset", "leaderworkerset.x-k8s.io/v1", "tandem-decode-elastic")):
        raw = f"--raw=/apis/{path}/namespaces/{namespace}/{kind}s/{name}/scale"
        for count in (3, 0, 2):
            scale = json.loads(kubernetes.run("kubectl", "get", raw).stdout)
            scale["spec"] = {"replicas": count}
            kubernetes.run("kubectl", "replace", raw, "--filename=-", stdin=json.dumps(scale))
            assert replicas(kubernetes, namespace, kind, name) == count
        kubernetes.helm("upgrade", "tandem", namespace, values("keda"), "--set=logs.filter=debug")
        assert replicas(kubernetes, namespace, kind, name) == 2
    kubernetes.wait(lambda: has_its_pods(kubernetes, namespace, "tandem"), 120, "pods")
    kubernetes.helm("uninstall", "tandem", namespace)


def test_the_hpa_controller_scales(kubernetes: Kubernetes) -> None:
    """To what a pool has at least; beyond, it takes metrics, which nobody serves here."""
    namespace = kubernetes.namespace("hpa")
    kubernetes.helm("install", "tandem", namespace, values("hpa"))
    kubernetes.wait(lambda: replicas(kubernetes, namespace, "deployment", "tandem-decode-cpu") == 2, 60, "the least number")
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
    assert replicas(kubernetes, namespace, "deployment", "tandem-decode-cpu") == 5
    kubernetes.helm("uninstall", "tandem", namespace)


def test_autoscaling_comes_and_goes(kubernetes: Kubernetes) -> None:
    namespace = kubernetes.namespace("comes-and-goes")
    fixed = [{"name": "cpu", "replicas": 3}]
    args = (f"--set-json=pools.decode={json.dumps(fixed)}",)
    kubernetes.helm("install", "tandem", namespace, *args)
    kubernetes.helm("upgrade", "tandem", namespace, values("hpa"))
    kubernetes.wait(lambda: replicas(kubernetes, namespace, "deployment", "tandem-decode-cpu") == 2, 60, "the least number")
    kubernetes.helm("upgrade", "tandem", namespace, *args)
    assert replicas(kubernetes, namespace, "deployment", "tandem-decode-cpu") == 3
    kubernetes.helm("uninstall", "tandem", namespace)
