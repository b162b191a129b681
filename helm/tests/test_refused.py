"""Values that are wrong are refused, by name."""

import pytest

from chart import template

TPU = '"replicas": 1, "slice"'
CASES = [
    ({"router.replicsa": "2"}, "at '/router': additional properties 'replicsa'"),
    ({"router.replicas": '"two"'}, "/router/replicas"),
    ({"router.replicas": "2"}, "router.replicas: 2 routers need etcd"),
    ({"router.flags": '{"max-in-fligt": 1}'}, "/router/flags"),
    ({"workers.flags": '{"float": "f16"}'}, "/workers/flags/float"),
    ({"pools.prefill": '[{"name": "a", "replicas": 1, "flags": {"batches": [1]}}]'}, "/pools/prefill/0/flags"),
    ({"pools.prefill": "[]"}, "/pools/prefill"),
    ({"pools.prefill": '[{"name": "A", "replicas": 1}]'}, "/pools/prefill/0/name"),
    ({"pools.prefill": '[{"name": "fifteen-letters", "replicas": 1}]'}, "/pools/prefill/0/name"),
    ({"pools.decode": '[{"name": "a", "replicas": 1}, {"name": "a", "replicas": 1}]'}, 'pools.decode[1].name: "a"'),
    ({"pools.decode": f'[{{"name": "a", {TPU}: "v6e-12"}}]'}, 'pools.decode[0] (a).slice: "v6e-12" is not offered: v6e-1, v6e-4'),
    ({"pools.decode": f'[{{"name": "a", {TPU}: "tpu7x-1"}}]'}, '(a).slice: "tpu7x-1" is not offered: tpu7x-4, tpu7x-8, tpu7x-16'),
    ({"pools.decode": f'[{{"name": "a", {TPU}: "v5e-4"}}]'}, '(a).slice: "v5e-4" is no TPU slice: accelerators are tpu7x, v6e'),
    ({"pools.decode": f'[{{"name": "a", {TPU}: "v6e"}}]'}, '(a).slice: "v6e" is not offered'),
    ({"pools.decode": f'[{{"name": "a", {TPU}: "v6e-16"}}]'}, "(a).slice: v6e-16 spans 4 hosts: set multiHost: true"),
    ({"pools.decode": f'[{{"name": "a", {TPU}: "v6e-4", "multiHost": true}}]'}, "(a).multiHost: v6e-4 is one host"),
    ({"pools.decode": '[{"name": "a", "replicas": 1, "multiHost": true}]'}, "(a).multiHost: needs a slice"),
    ({"pools.decode": f'[{{"name": "a", {TPU}: "v6e-4"}}]'}, "(a).slice: needs tpu.libtpu.image"),
    ({"pools.decode": '[{"name": "a", "autoscale": {"min": 1, "max": 2}}]'}, "(a).autoscale: needs autoscaling.kind"),
    ({"autoscaling.kind": '"keda"'}, "autoscaling.kind: keda, but no pool has autoscale"),
    ({"autoscaling.kind": '"hpa"', "pools.decode": '[{"name": "a", "autoscale": {"min": 0, "max": 2}}]'},
     "(a).autoscale.min: only autoscaling.kind keda"),
    ({"autoscaling.kind": '"keda"', "pools.decode": '[{"name": "a", "autoscale": {"min": 3, "max": 2}}]'},
     "(a).autoscale: max 2 is less than min 3"),
    ({"autoscaling.kind": '"keda"', "pools.decode": '[{"name": "a", "autoscale": {"min": 1, "max": 2}},'
      ' {"name": "b", "autoscale": {"min": 1, "max": 2}}]'}, "pools.decode: autoscale on a, b"),
    ({"pools.decode": '[{"name": "a"}]'}, "(a).replicas: is missing"),
    ({"autoscaling.kind": '"keda"', "pools.decode": '[{"name": "a", "replicas": 1, "autoscale": {"min": 1, "max": 2}}]'},
     "(a).replicas: of no use with autoscale"),
    ({"pools.decode": '[{"name": "a", "replicas": 1, "rollout": {"maxSurge": 0, "maxUnavailable": "0%"}}]'},
     "pools.decode[0] (a).rollout: with maxSurge 0 and maxUnavailable 0"),
    ({"pools.decode": f'[{{"name": "a", {TPU}: "v6e-16", "multiHost": true, "rollout": {{"maxUnavailable": 0}}}}]', "tpu.libtpu.image": '"i"'},
     "pools.decode[0] (a).rollout: with maxSurge 0 and maxUnavailable 0"),
    ({"pools.decode": '[{"name": "a", "replicas": 1, "podLabels": {"tandem/pool": "b"}}]'}, "/pools/decode/0/podLabels"),
    ({"router.podLabels": '{"app.kubernetes.io/name": "other"}'}, "/router/podLabels"),
    ({"router.podLabels": '{"tier": "of gold"}'}, "/router/podLabels/tier"),
    ({"router.nodeSelector": '{"a kind": "of"}'}, "/router/nodeSelector"),
    ({"router.priorityClassName": '"High"'}, "/router/priorityClassName"),
    ({"router.resources.requests.memory": '"much"'}, "/router/resources/requests/memory"),
    ({"router.credentialsSecretName": '"my_secret"'}, "/router/credentialsSecretName"),
    ({"images.pullSecrets": '[""]'}, "/images/pullSecrets/0"),
    ({"disruption.maxUnavailable": '"101%"'}, "/disruption/maxUnavailable"),
    ({"networkPolicy.clients": "[{}]"}, "/networkPolicy/clients/0"),
    ({"model.source": '"hf://org/model"'}, "/model/source"),
    ({"model.fetch.size": '"much"'}, "/model/fetch/size"),
    ({"etcd.mode": '"external"'}, "etcd.endpoints: etcd.mode external needs"),
    ({"etcd.endpoints": '["http://e:2379"]'}, "etcd.endpoints: of no use with etcd.mode none"),
    ({"etcd.mode": '"external"', "etcd.endpoints": '["e:2379"]'}, "/etcd/endpoints/0"),
    ({"etcd.mode": '"external"', "etcd.endpoints": '["https://e:2379"]'}, "etcd.tlsSecretName: goes with https://"),
    ({"etcd.mode": '"chart"', "etcd.user": '"u"'}, "etcd.user: of no use with etcd.mode chart"),
    ({"etcd.mode": '"external"', "etcd.endpoints": '["http://e:2379"]', "etcd.user": '"u"'}, "etcd.user: goes with etcd.passwordSecretName"),
    ({"etcd.mode": '"chart"', "etcd.replicas": "2"}, "etcd.replicas: 2 is even"),
    ({"tls.secretName": '"s"'}, "tls.secretName: of no use without tls.enabled"),
    ({"tls.enabled": "true", "tls.secretName": '"s"', "tls.certManager.issuerRef": '{"name": "i"}'}, "tls.certManager.issuerRef: of no use"),
    ({"otlp": '"collector:4317"'}, "/otlp"),
    ({"ipFamily": '"ipv4"'}, "/ipFamily"),
    ({"nosuch": "1"}, "additional properties 'nosuch'"),
]


@pytest.mark.parametrize(("values", "said"), CASES, ids=[f"{n}-{'+'.join(v)}" for n, (v, _) in enumerate(CASES)])
def test_refused_by_name(values: dict[str, str], said: str) -> None:
    rendered = template(*[flag for key, value in values.items() for flag in ("--set-json", f"{key}={value}")])
    assert rendered.returncode != 0, "was taken"
    assert said in rendered.stderr, rendered.stderr
