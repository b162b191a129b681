"""What the API server lets in: every object of every file of values, without a warning, and pods under the restricted profile."""

import json

import pytest

from chart import objects, template
from cluster import Kubernetes
from releases import NAMES, as_pods, has_its_pods, left, release_name, sent, values

LOOSE = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "loose"}, "spec": {"containers": [{"name": "it", "image": "it"}]}}
# those that the tests' values name
PRIORITIES = [{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1000}
              for name in ("serving", "100")]
ADDED = {"capabilities": {"add": ["SYS_RESOURCE"]}}


def against(kubernetes: Kubernetes, namespace: str, *documents: dict) -> str:
    """What the API server has against documents, which it does not keep; empty if nothing. Helm lets unknown fields pass: this does not."""
    done = kubernetes.run(
        "kubectl", "create", "--dry-run=server", "--validate=strict", "--filename=-", f"--namespace={namespace}",
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}), check=False,
    )
    assert done.stderr or len(done.stdout.splitlines()) == len(documents)
    return done.stderr


def test_what_is_against_an_object_is_heard(kubernetes: Kubernetes) -> None:
    """Refusals and warnings reach the tests below, or their silence would say nothing."""
    namespace = kubernetes.namespace("heard")
    assert 'violates PodSecurity "restricted' in against(kubernetes, namespace, LOOSE)
    assert 'unknown field' in against(kubernetes, namespace, LOOSE | {"spec": LOOSE["spec"] | {"unheard": 1}})
    pool = [{"name": "tpu", "replicas": 1, "slice": "v6e-4"}]
    with pytest.raises(AssertionError, match="would violate PodSecurity .*SYS_RESOURCE"):
        kubernetes.helm(
            "install", "tandem", namespace, f"--set-json=pools.decode={json.dumps(pool)}", "--set=tpu.libtpu.image=it",
            f"--set-json=tpu.securityContext={json.dumps(ADDED)}",
        )


def generations(kubernetes: Kubernetes, namespace: str) -> dict[str, int]:
    return {d["metadata"]["name"]: d["metadata"]["generation"] for d in kubernetes.get("deployment,statefulset,leaderworkersets", namespace)}


@pytest.mark.parametrize("name", NAMES)
def test_every_object_is_taken_kept_and_given_back(kubernetes: Kubernetes, name: str) -> None:
    namespace, release = kubernetes.namespace(f"takes-{name}"), release_name(name)
    kubernetes.apply(*PRIORITIES)
    rendered = objects(template(values(name), release=release, namespace=namespace))
    # a pod wants its account to be there
    assert not against(kubernetes, namespace, *(d for d in rendered if d["kind"] != "Pod"))
    kubernetes.helm("install", release, namespace, values(name))

    # what compares the two, as GitOps does, sees no change where there is none
    items = sent(kubernetes, "manifest", release, namespace)
    for item in items:
        # which Helm adds
        item["metadata"].setdefault("annotations", {}).update({"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace})
    compared = kubernetes.run(
        "kubectl", "diff", "--server-side", "--field-manager=helm", "--filename=-", f"--namespace={namespace}", check=False,
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}),
    )
    assert compared.returncode == 0, compared.stdout + compared.stderr
    if name != "hpa":  # whose controller changes it in between
        before = generations(kubernetes, namespace)
        kubernetes.helm("upgrade", release, namespace, values(name))
        assert before and before == generations(kubernetes, namespace)

    kubernetes.wait(lambda: has_its_pods(kubernetes, namespace, release), 120, f"pods of {name}")
    # of what no controller here makes pods: slices of several hosts, and the test
    for document in as_pods([d for d in rendered if d["kind"] in ("LeaderWorkerSet", "Pod")]):
        said = against(kubernetes, namespace, document)
        if name == "tpu7x" and document["spec"]["containers"][0]["name"] == "worker":
            # which its values add
            assert 'must not include "SYS_RESOURCE"' in said and said.count("must") == 1, said
        else:
            assert not said, f"{document['metadata']['name']}: {said}"

    kubernetes.helm("uninstall", release, namespace)
    # what etcd wrote is the operator's to delete
    kept = {f"persistentvolumeclaim/data-tandem-etcd-{n}" for n in range(3)} if name == "tpu7x" else set()
    kubernetes.wait(lambda: left(kubernetes, namespace) == kept, 60, "an end")


def test_accounts_have_no_rights(kubernetes: Kubernetes) -> None:
    """Neither roles, nor tokens in pods: a release's accounts may what any account may that nobody gave a right to."""
    namespace = kubernetes.namespace("rights")
    kubernetes.helm("install", "tandem", namespace, values("tls"))

    def rights(account: str) -> list[str]:
        user = f"--as=system:serviceaccount:{namespace}:{account}"
        return kubernetes.run("kubectl", "auth", "can-i", "--list", user, f"--namespace={namespace}").stdout.splitlines()

    accounts = [d["metadata"]["name"] for d in kubernetes.get("serviceaccount", namespace)]
    assert len(accounts) == 6  # with the namespace's own
    for account in accounts:
        assert rights(account) == rights("default")
        for verb, what in (("get", "secrets"), ("list", "pods"), ("create", "pods"), ("get", "configmaps"), ("*", "*")):
            asked = kubernetes.run("kubectl", "auth", "can-i", verb, what, f"--as=system:serviceaccount:{namespace}:{account}",
                                   f"--namespace={namespace}", check=False)
            assert asked.stdout.strip() == "no", f"{account} may {verb} {what}"
    kubernetes.wait(lambda: has_its_pods(kubernetes, namespace, "tandem"), 120, "pods")
    for pod in kubernetes.get("pods", namespace):
        # admission adds a token to pods that do not decline
        assert not [v for v in pod["spec"]["volumes"] if "projected" in v], pod["metadata"]["name"]
    kubernetes.helm("uninstall", "tandem", namespace)


def test_whoever_has_a_namespace_can_install(kubernetes: Kubernetes) -> None:
    """The role `admin` in one namespace is enough for a trial: nothing is the cluster's."""
    namespace = kubernetes.namespace("tenants")
    kubernetes.run("kubectl", "create", "rolebinding", "tenant", "--clusterrole=admin", "--user=tenant", f"--namespace={namespace}")
    kubernetes.helm("install", "tandem", namespace, user="tenant")
    kubernetes.helm("upgrade", "tandem", namespace, "--set=etcd.mode=chart", "--set=router.replicas=2", user="tenant")
    kubernetes.helm("uninstall", "tandem", namespace, user="tenant")
    other = kubernetes.namespace("not-the-tenants")
    with pytest.raises(AssertionError, match="forbidden"):
        kubernetes.helm("install", "tandem", other, user="tenant")
