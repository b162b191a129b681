"""What controllers and the scheduler make of a release. Where a kubelet would report, a test says that a pod is ready."""

import itertools
import json
from collections.abc import Callable, Iterator

import pytest

from cluster import Kubernetes
from releases import as_pods, has_its_pods, living, selector, sent, values

ADDRESSES = itertools.count(1)
TPU = {"accelerator": "tpu-v6e-slice", "topology": "2x2"}


def node(name: str, tpu: dict[str, str] | None = None) -> dict:
    """As GKE labels and taints one."""
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": name[-1]}
    size = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "100"}
    taints = []
    if tpu:
        labels |= {f"cloud.google.com/gke-tpu-{key}": value for key, value in tpu.items()}
        size["google.com/tpu"] = "4"
        taints = [{"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}]
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {"taints": taints},
        "status": {"capacity": size, "allocatable": size, "conditions": [{"type": "Ready", "status": "True", "reason": "said"}]},
    }


@pytest.fixture
def nodes(kubernetes: Kubernetes) -> Iterator[Callable[..., None]]:
    """Makes nodes, and takes them away with the pods on them, which no kubelet would end."""
    names = []

    def make(*documents: dict) -> None:
        for document in documents:
            name = document["metadata"]["name"]
            names.append(name)
            kubernetes.run("kubectl", "create", "--filename=-", stdin=json.dumps(document))
            kubernetes.wait(lambda: "node.kubernetes.io/not-ready" not in str(kubernetes.one("node", "", name)["spec"]), 60, name)

    yield make
    kubernetes.run("kubectl", "delete", "node", *names)
    for name in names:
        kubernetes.run("kubectl", "delete", "pods", "--all-namespaces", f"--field-selector=spec.nodeName={name}", "--force", "--grace-period=0")


def placed(kubernetes: Kubernetes, namespace: str, which: str) -> list[str]:
    """Nodes of pods, in order; of one that is on none, ''."""
    return sorted(pod["spec"].get("nodeName", "") for pod in living(kubernetes, namespace, which))


def say_ready(kubernetes: Kubernetes, namespace: str, *pods: dict) -> None:
    for pod in pods:
        address = f"10.9.0.{next(ADDRESSES)}"
        status = {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
            "conditions": [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")],
        }
        kubernetes.run("kubectl", "patch", "pod", pod["metadata"]["name"], f"--namespace={namespace}", "--subresource=status",
                       f"--patch={json.dumps({'status': status})}")


def endpoints(kubernetes: Kubernetes, namespace: str, service: str) -> dict[str, bool]:
    """Pods that a service lists, and whether as ready."""
    slices = kubernetes.get("endpointslices", namespace, f"kubernetes.io/service-name={service}")
    return {e["targetRef"]["name"]: e["conditions"]["ready"] for s in slices for e in s.get("endpoints") or []}


def component(release: str, name: str) -> str:
    return f"{selector(release)},app.kubernetes.io/component={name}"


def test_pods_go_where_their_slice_is(kubernetes: Kubernetes, nodes: Callable[..., None]) -> None:
    namespace = kubernetes.namespace("placed")
    nodes(node("cpu-a"), node("tpu-a", TPU), node("other-a", TPU | {"accelerator": "tpu7x"}), node("larger-a", TPU | {"topology": "4x4"}))
    pools = [{"name": "v6e", "replicas": 2, "slice": "v6e-4"}]
    kubernetes.helm("install", "tandem", namespace, f"--set-json=pools.decode={json.dumps(pools)}", "--set=tpu.libtpu.image=it")
    kubernetes.wait(lambda: placed(kubernetes, namespace, component("tandem", "decode")) == ["", "tpu-a"], 60, "one slice's pod")
    for name in ("router", "prefill"):
        kubernetes.wait(lambda: placed(kubernetes, namespace, component("tandem", name)) == ["cpu-a"], 60, name)
    [waits] = [p for p in living(kubernetes, namespace, component("tandem", "decode")) if "nodeName" not in p["spec"]]
    name = waits["metadata"]["name"]
    kubernetes.wait(lambda: "1 Insufficient google.com/tpu" in str(kubernetes.one("pod", namespace, name)["status"]), 60, "a reason")
    nodes(node("tpu-b", TPU))
    kubernetes.wait(lambda: placed(kubernetes, namespace, component("tandem", "decode")) == ["tpu-a", "tpu-b"], 60, "the other one")
    kubernetes.helm("uninstall", "tandem", namespace)


def test_pods_of_a_slice_of_several_hosts_fill_it(kubernetes: Kubernetes, nodes: Callable[..., None]) -> None:
    """The LeaderWorkerSet's controller is not here: its pods are made from its template."""
    namespace = kubernetes.namespace("group")
    nodes(*(node(f"host-{n}", TPU | {"topology": "4x4"}) for n in range(4)))
    kubernetes.helm("install", "tandem", namespace, values("v6e-16-pair"), "--set=model.source=image:/models/k3-demo")
    [pod] = [p for p in as_pods(sent(kubernetes, "manifest", "tandem", namespace)) if p["metadata"]["name"] == "tandem-decode-v6e-16"]
    for n in range(5):
        kubernetes.run("kubectl", "create", "--filename=-", f"--namespace={namespace}",
                       stdin=json.dumps(pod | {"metadata": pod["metadata"] | {"name": f"tandem-decode-v6e-16-0-{n}"}}))
    expected = ["", *(f"host-{n}" for n in range(4))]
    kubernetes.wait(lambda: placed(kubernetes, namespace, component("tandem", "decode")) == expected, 60, "four pods on four hosts")
    kubernetes.helm("uninstall", "tandem", namespace)


def test_routers_change_one_by_one(kubernetes: Kubernetes, nodes: Callable[..., None]) -> None:
    """Services, budgets and a rolling update, as pods come and are ready."""
    namespace = kubernetes.namespace("rolling")
    nodes(node("cpu-a"))
    release = ("--set=etcd.mode=chart", "--set=router.replicas=2")
    kubernetes.helm("install", "tandem", namespace, *release)
    kubernetes.wait(lambda: has_its_pods(kubernetes, namespace, "tandem"), 120, "pods")
    which = component("tandem", "router")
    first = {p["metadata"]["name"]: p for p in living(kubernetes, namespace, which)}
    assert len(first) == 2
    # as a kubelet does before probes pass: there, with an address
    say_ready(kubernetes, namespace, *first.values())
    for service in ("tandem", "tandem-headless", "tandem-routers"):
        kubernetes.wait(lambda: endpoints(kubernetes, namespace, service) == dict.fromkeys(first, True), 60, service)
    [slice] = kubernetes.get("endpointslices", namespace, "kubernetes.io/service-name=tandem")
    assert {(p["name"], p["port"], p["appProtocol"]) for p in slice["ports"]} == {("grpc", 50051, "kubernetes.io/h2c"), ("http", 8080, "http")}

    # a drain takes one, and no second before another is ready
    kubernetes.wait(lambda: kubernetes.one("pdb", namespace, "tandem-router")["status"]["disruptionsAllowed"] == 1, 60, "a budget")
    one, other = first

    def evict(name: str) -> str:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
        return kubernetes.run("kubectl", "create", f"--raw=/api/v1/namespaces/{namespace}/pods/{name}/eviction", "--filename=-",
                              stdin=json.dumps(eviction), check=False).stderr

    assert not evict(one)
    assert "disruption budget" in evict(other)
    kubernetes.run("kubectl", "delete", "pod", one, f"--namespace={namespace}", "--force", "--grace-period=0")
    kubernetes.wait(lambda: len(living(kubernetes, namespace, which)) == 2, 60, "another router")
    second = {p["metadata"]["name"]: p for p in living(kubernetes, namespace, which)}
    say_ready(kubernetes, namespace, *(pod for name, pod in second.items() if name not in first))
    kubernetes.wait(lambda: endpoints(kubernetes, namespace, "tandem") == dict.fromkeys(second, True), 60, "two routers")

    # a change: one more comes, and none goes before it is ready
    kubernetes.helm("upgrade", "tandem", namespace, *release, "--set=logs.filter=debug")
    kubernetes.wait(lambda: len(living(kubernetes, namespace, which)) == 3, 60, "a new router")
    now = {p["metadata"]["name"]: p for p in living(kubernetes, namespace, which)}
    assert second.keys() < now.keys()
    [new] = now.keys() - second.keys()
    say_ready(kubernetes, namespace, now[new])
    kubernetes.wait(lambda: len(second.keys() & {p["metadata"]["name"] for p in living(kubernetes, namespace, which)}) == 1, 60, "an old one's end")
    kubernetes.helm("uninstall", "tandem", namespace)
