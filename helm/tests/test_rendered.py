"""What the chart comes to, for each file of values."""

import re
import subprocess

import kubernetes_validate
import pytest

import schemas
from chart import CHART, HELM, VALUES, Rendered, objects, one, pods, template

CRD_GROUPS = ("leaderworkerset.x-k8s.io", "keda.sh", "cert-manager.io", "monitoring.coreos.com")
PROGRAMS = ("router", "worker")


def test_lint() -> None:
    values = [flag for path in VALUES for flag in ("--values", path)]
    for more in ([], values[:2], values[-2:]):
        done = subprocess.run([HELM, "lint", "--strict", CHART, *more], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_object_is_valid(documents: list[dict]) -> None:
    names = set()
    for document in documents:
        name = (document["kind"], document["metadata"]["name"])
        assert name not in names, f"{name} is there twice"
        names.add(name)
        faults = schemas.faults(document)
        if faults is None:
            # raises on an unknown field; of a kind that it does not know it would only warn
            assert not document["apiVersion"].startswith(CRD_GROUPS), name
            kubernetes_validate.validate(document, "1.37", strict=True)
        else:
            assert not faults, f"{name}: {faults}"


def invalid(document: dict) -> bool:
    faults = schemas.faults(document)
    if faults is not None:
        return bool(faults)
    try:
        kubernetes_validate.validate(document, "1.37", strict=True)
    except kubernetes_validate.ValidationError:
        return True
    return False


def test_a_field_that_no_schema_names_is_noticed(rendered: Rendered) -> None:
    """In every kind, at the top and in its spec."""
    kinds = {d["kind"]: d for name in ("keda", "hpa", "tls") for d in rendered(name)}
    for kind, document in kinds.items():
        assert invalid(document | {"unheard": 1}), kind
        if "spec" in document:
            assert invalid(document | {"spec": document["spec"] | {"unheard": 1}}), kind


def test_a_trial_needs_no_crd(rendered: Rendered) -> None:
    groups = {document["apiVersion"].partition("/")[0] for document in rendered("trial")}
    assert groups == {"v1", "apps", "policy", "networking.k8s.io"}


def test_older_kubernetes(rendered: Rendered) -> None:
    """The oldest that Chart.yaml allows."""
    for document in rendered("trial"):
        kubernetes_validate.validate(document, "1.30", strict=True)


def test_names_fit_what_is_made_of_them(documents: list[dict]) -> None:
    label = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
    for document in documents:
        name = document["metadata"]["name"]
        assert label.fullmatch(name), name
        # a Service's name is a label; of these, others make names: -NNNNN of groups and pods, the hash of a revision
        longest = {"LeaderWorkerSet": 50, "StatefulSet": 50, "ScaledObject": 54}.get(document["kind"], 63)
        assert len(name) <= longest, f"{document['kind']} {name}"


def test_releases_keep_apart() -> None:
    """Two long names that begin alike, in one namespace."""
    first, second = (
        {(d["kind"], d["metadata"]["name"]) for d in objects(template(release=f"a-release-with-a-long-name-{n}"))}
        for n in (1, 2)
    )
    assert not first & second


def test_pods_are_restricted(documents: list[dict]) -> None:
    """Pod Security Standards, profile restricted, and some more."""
    accounts = {d["metadata"]["name"]: d for d in documents if d["kind"] == "ServiceAccount"}
    for document, spec in pods(documents):
        name = document["metadata"]["name"]
        assert spec["automountServiceAccountToken"] is False, name
        assert accounts[spec["serviceAccountName"]]["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"] + spec.get("initContainers", []):
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False and security["readOnlyRootFilesystem"] is True, name
            assert security["capabilities"]["drop"] == ["ALL"], name
            assert container["resources"]["requests"], name


def test_pods_have_time_to_end_what_they_run(documents: list[dict]) -> None:
    for document, spec in pods(documents):
        [container] = spec["containers"]
        if container["name"] not in PROGRAMS:
            continue
        [grace] = [int(arg.partition("=")[2]) for arg in container["args"] if arg.startswith("--grace=")]
        before = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        assert spec["terminationGracePeriodSeconds"] >= before + grace + 15, document["metadata"]["name"]
    [router] = [s["containers"][0] for d, s in pods(documents) if s["containers"][0]["name"] == "router"]
    [timeout] = [arg.partition("=")[2] for arg in router["args"] if arg.startswith("--request-timeout=")]
    assert f"--grace={timeout}" in router["args"]


def test_pods_are_selected_by_what_is_theirs(documents: list[dict]) -> None:
    """Services, budgets and policies select pods of this release, and no object's selector two kinds of pods."""
    templates = [
        (d["spec"].get("template") or d["spec"].get("leaderWorkerTemplate", {}).get("workerTemplate"))["metadata"]["labels"]
        for d in documents if d["kind"] in ("Deployment", "StatefulSet", "LeaderWorkerSet")
    ]
    templates += [d["metadata"]["labels"] for d in documents if d["kind"] == "Pod"]
    for document in documents:
        spec = document.get("spec", {})
        if document["kind"] == "Service":
            selector = spec["selector"]
        elif document["kind"] == "NetworkPolicy":
            selector = spec["podSelector"]["matchLabels"]
        elif document["kind"] in ("PodDisruptionBudget", "Deployment", "StatefulSet"):
            selector = spec["selector"]["matchLabels"]
        else:
            continue
        chosen = [labels for labels in templates if selector.items() <= labels.items()]
        assert chosen, f"{document['kind']} {document['metadata']['name']} selects nothing"
        if document["kind"] != "NetworkPolicy":
            assert len(chosen) == 1, f"{document['kind']} {document['metadata']['name']} selects {chosen}"


SLICES = [
    ("v6e-1", "tpu-v6e-slice", "1x1", 1, 1), ("v6e-4", "tpu-v6e-slice", "2x2", 4, 1),
    ("v6e-8", "tpu-v6e-slice", "2x4", 4, 2), ("v6e-16", "tpu-v6e-slice", "4x4", 4, 4),
    ("v6e-256", "tpu-v6e-slice", "16x16", 4, 64), ("tpu7x-4", "tpu7x", "2x2x1", 4, 1),
    ("tpu7x-16", "tpu7x", "2x2x4", 4, 4), ("tpu7x-32", "tpu7x", "2x4x4", 4, 8), ("tpu7x-64", "tpu7x", "4x4x4", 4, 16),
]


@pytest.mark.parametrize(("slice", "accelerator", "topology", "chips", "hosts"), SLICES)
def test_slices(slice: str, accelerator: str, topology: str, chips: int, hosts: int) -> None:
    pool = f'[{{"name": "p", "replicas": 2, "slice": "{slice}", "multiHost": {"true" if hosts > 1 else "false"}}}]'
    found = objects(template("--set-json", f"pools.decode={pool}", "--set", "tpu.libtpu.image=i"))
    [(document, spec)] = [(d, s) for d, s in pods(found) if d["metadata"]["name"] == "tandem-decode-p"]
    assert spec["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": accelerator, "cloud.google.com/gke-tpu-topology": topology,
    }
    [container] = spec["containers"]
    assert container["resources"]["requests"]["google.com/tpu"] == container["resources"]["limits"]["google.com/tpu"] == chips
    assert {"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]
    assert document["spec"]["replicas"] == 2
    if hosts == 1:
        assert document["kind"] == "Deployment"
    else:
        assert document["kind"] == "LeaderWorkerSet"
        assert document["spec"]["leaderWorkerTemplate"]["size"] == hosts
        assert document["metadata"]["annotations"] == {
            "leaderworkerset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool",
        }
    product = 1
    for side in topology.split("x"):
        product *= int(side)
    assert product == chips * hosts


def test_what_scales_is_not_counted_twice(rendered: Rendered) -> None:
    """An autoscaled pool has no replicas of its own, so that an upgrade does not undo what the scaler did."""
    keda, hpa = rendered("keda"), rendered("hpa")
    scaled = {d["spec"]["scaleTargetRef"]["name"]: d for d in keda if d["kind"] == "ScaledObject"}
    assert set(scaled) == {"tandem-prefill-v6e-4", "tandem-decode-elastic"}
    assert scaled["tandem-decode-elastic"]["spec"]["scaleTargetRef"]["kind"] == "LeaderWorkerSet"
    [trigger] = scaled["tandem-decode-elastic"]["spec"]["triggers"]
    assert trigger["metadata"] == {"scalerAddress": "tandem-routers.serving.svc:50051", "role": "decode"}
    assert one(keda, "Service", "tandem-routers")["spec"]["publishNotReadyAddresses"] is True
    targets = [d["spec"]["scaleTargetRef"] for d in keda + hpa if d["kind"] in ("ScaledObject", "HorizontalPodAutoscaler")]
    for target in targets:
        [pool] = [d for d in keda + hpa if (d["kind"], d["metadata"]["name"]) == (target["kind"], target["name"])]
        assert "replicas" not in pool["spec"]
    assert one(keda, "Deployment", "tandem-decode-fixed")["spec"]["replicas"] == 2
    decode = one(hpa, "HorizontalPodAutoscaler", "tandem-decode-cpu")["spec"]["metrics"][0]["pods"]
    assert decode["target"]["averageValue"] == "6400m"


def test_members_have_certificates(rendered: Rendered) -> None:
    documents = rendered("tls")
    member = one(documents, "Certificate", "tandem-members")["spec"]
    assert "tandem" in member["dnsNames"] and {"server auth", "client auth"} <= set(member["usages"])
    [endpoint] = {arg for _, s in pods(documents) for c in s["containers"] for arg in c.get("args", []) if arg.startswith("--etcd=")}
    assert endpoint.removeprefix("--etcd=https://").removesuffix(":2379") in member["dnsNames"]
    for _, spec in pods(documents):
        [container] = spec["containers"]
        if container["name"] in PROGRAMS:
            assert "--tls=/tls" in container["args"]
            [volume] = [v for v in spec["volumes"] if v["name"] == "tls"]
            assert volume["secret"]["secretName"] == member["secretName"]
            # kubelets have no certificate
            assert "grpc" not in container["readinessProbe"] or container["name"] == "router"
    assert not [d for d in rendered("tls-given") if d["apiVersion"].startswith("cert-manager.io")]


def test_whoever_is_called_may_be_called(documents: list[dict]) -> None:
    """Each port that a program is told to call is open to it in the policies of both ends."""
    policies = {d["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]: d["spec"] for d in documents
                if d["kind"] == "NetworkPolicy" and "tandem/pool" not in d["spec"]["podSelector"]["matchLabels"]}

    def passes(rules: list[dict], side: str, component: str, port: int) -> bool:
        return any(
            any(p["port"] == port for p in rule.get("ports", []))
            and (side not in rule or any(
                peer.get("podSelector", {}).get("matchLabels", {}).get("app.kubernetes.io/component") == component
                for peer in rule[side]))
            for rule in rules
        )

    calls = [("router", "prefill", 50051), ("router", "decode", 50051), ("prefill", "decode", 50053), ("test", "router", 50051)]
    args = [arg for _, spec in pods(documents) for c in spec["containers"] for arg in c.get("args", [])]
    if any(arg.startswith("--router=") for arg in args):
        calls += [("prefill", "router", 50052), ("decode", "router", 50052)]
    if any(arg.startswith("--peers=") for arg in args):
        calls += [("router", "router", 50051)]
    if "etcd" in policies:
        calls += [(c, "etcd", 2379) for c in ("router", "prefill", "decode")] + [("etcd", "etcd", 2380)]
    for caller, called, port in calls:
        assert passes(policies[caller]["egress"], "to", called, port), f"{caller} may not call {called}:{port}"
        assert passes(policies[called]["ingress"], "from", caller, port), f"{called}:{port} is closed to {caller}"


def test_where_models_come_from(rendered: Rendered) -> None:
    """What is fetched, to where, and what programs read."""
    for name, address in (("tpu7x", ":gcs:models-of-ours/k3/2026-11"), ("many-pools", ":s3:models/glm-5.3-flash")):
        for _, spec in pods(rendered(name)):
            [container] = spec["containers"]
            if container["name"] not in PROGRAMS:
                continue
            assert "--model=/model" in container["args"]
            [fetch] = [c for c in spec["initContainers"] if c["name"] == "fetch-model"]
            assert fetch["args"][:3] == ["copy", address, "/model"]
            assert ("--exclude=*.safetensors" in fetch["args"]) == (container["name"] == "router")
            assert {m["name"]: m.get("readOnly", False) for m in container["volumeMounts"]}["model"] is True
    [mount] = {str(m) for _, s in pods(rendered("v6e-16-pair")) for m in s["containers"][0].get("volumeMounts", []) if m["name"] == "model"}
    assert "kimi-linear" in mount


def test_flags_of_a_pool_go_before_those_of_all(rendered: Rendered) -> None:
    pool = one(rendered("many-pools"), "Deployment", "tandem-prefill-cpu")["spec"]["template"]["spec"]["containers"][0]["args"]
    other = one(rendered("many-pools"), "Deployment", "tandem-prefill-v6e-1")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--int8" in other and "--int8" not in pool
    assert "--float=bf16" in pool and "--checkpoint-format=int8" in pool
    sent = one(rendered("tpu7x"), "LeaderWorkerSet", "tandem-decode-d32")
    assert "--transfer-staging=4294967296" in sent["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["args"]


def test_from_none_routers_take_requests_that_bring_workers() -> None:
    def args(prefill: str, *more: str) -> list[str]:
        pools = ("--set", "autoscaling.kind=keda", "--set-json", f"pools.prefill={prefill}")
        return one(objects(template(*pools, *more)), "Deployment", "tandem-router")["spec"]["template"]["spec"]["containers"][0]["args"]

    none = '{"name": "a", "autoscale": {"min": 0, "max": 3}}'
    assert {"--on-demand", "--worker-wait=600"} <= set(args(f"[{none}]"))
    assert "--worker-wait=90" in args(f"[{none}]", "--set", "router.flags.worker-wait=90")
    assert "--on-demand" not in args(f'[{none}, {{"name": "b", "replicas": 1}}]')
