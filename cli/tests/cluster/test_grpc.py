"""What a gRPC client finds by reflection and health."""

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from conftest import MODEL


def test_reflection_health_and_models(cluster):
    client = cluster.inference()
    assert {"tandem.v1.Inference", "tandem.v1.Membership", "grpc.health.v1.Health"} <= set(client.services())
    for address, names in [
        (cluster.state["router"]["grpc"], ["", "tandem.v1.Inference", MODEL.name]),
        (cluster.workers("prefill")[0]["grpc"], ["", "tandem.v1.Prefill", "tandem.v1.Worker"]),
        (cluster.workers("decode")[0]["grpc"], ["", "tandem.v1.Decode", "tandem.v1.Worker"]),
    ]:
        with grpc.insecure_channel(address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            for name in names:
                answer = health.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
                assert answer.status == health_pb2.HealthCheckResponse.SERVING, (address, name)
    request, call = client.method("tandem.v1.Inference", "ListModels")
    model = call(request(), timeout=5).models[0]
    assert model.name == MODEL.name and model.vocabulary_size > 256 and model.context_length >= 1024


def test_generate_says_where_the_time_went(cluster):
    out, last = cluster.inference().collect(
        cluster.inference().generate(text="In the beginning", sampling={"maxTokens": 12, "temperature": 0})
    )
    assert len(out) == last.usage.completion_tokens <= 12
    timing = last.timing
    assert 0 < timing.prefill <= timing.total and 0 < timing.first_token <= timing.total
    assert timing.prefill_worker and timing.decode_worker and timing.migrations == 0


def test_a_deadline_ends_the_stream_and_frees_everything(cluster):
    stream = cluster.inference().generate(
        timeout=0.25, tokens={"ids": [5] * 200}, sampling={"maxTokens": 1500, "ignoreEos": True}
    )
    try:
        for _ in stream:
            pass
        raise AssertionError("1500 tokens within 250 ms")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    cluster.wait_idle()
