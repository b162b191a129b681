"""Whatever scales a pool has its way: the scale subresource, and upgrades in between."""

import json

from cluster import Kubernetes
from releases import values

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


def test_autoscaling_comes_and_goes(kubernetes: Kubernetes) -> None:
    """A pool that is autoscaled begins again at one worker; without, its replicas are what the values say."""
    namespace = kubernetes.namespace("comes-and-goes")
    fixed = f"--set-json=pools.decode={json.dumps([{'name': 'cpu', 'replicas': 3}])}"
    kubernetes.helm("install", "tandem", namespace, fixed)
    kubernetes.helm("upgrade", "tandem", namespace, values("hpa"))
    assert replicas(kubernetes, namespace, DEPLOYMENT, "tandem-decode-cpu") == 1
    scale(kubernetes, namespace, DEPLOYMENT, "tandem-decode-cpu", 4)
    kubernetes.helm("upgrade", "tandem", namespace, fixed)
    assert replicas(kubernetes, namespace, DEPLOYMENT, "tandem-decode-cpu") == 3
    kubernetes.helm("uninstall", "tandem", namespace)
