"""Bad input gets a clear error that names the field, and the next request works."""

import json

import grpc
import httpx
import pytest

from conftest import MODEL
from inference import fault


@pytest.fixture
def context(cluster) -> int:
    request, call = cluster.inference().method("tandem.v1.Inference", "ListModels")
    return call(request(), timeout=5).models[0].context_length


def works(cluster):
    out, _ = cluster.inference().tokens([5, 6, 7], temperature=0, maxTokens=2)
    assert len(out) in (1, 2)


def refused(cluster, **fields):
    with pytest.raises(grpc.RpcError) as caught:
        list(cluster.inference().generate(**fields))
    works(cluster)
    return caught.value.code(), *fault(caught.value)


INVALID = grpc.StatusCode.INVALID_ARGUMENT


def test_grpc(cluster, context):
    ids = {"ids": [5, 6]}
    assert refused(cluster, tokens={"ids": []}) == (INVALID, "INVALID_FIELD", "prompt")
    assert refused(cluster, text="") == (INVALID, "INVALID_FIELD", "prompt")
    assert refused(cluster) == (INVALID, "INVALID_FIELD", "prompt")
    assert refused(cluster, tokens={"ids": [5] * (context + 1)})[:2] == (INVALID, "CONTEXT_LENGTH")
    assert refused(cluster, model="other", tokens=ids)[:2] == (grpc.StatusCode.NOT_FOUND, "UNKNOWN_MODEL")
    assert refused(cluster, tokens={"ids": [5, 4_000_000_000]})[2] == "prompt.tokens.ids"
    for sampling, field in [
        ({"temperature": "NaN"}, "sampling.temperature"),
        ({"temperature": -1}, "sampling.temperature"),
        ({"topP": 0}, "sampling.top_p"),
        ({"minP": 2}, "sampling.min_p"),
        ({"repetitionPenalty": 0}, "sampling.repetition_penalty"),
        ({"presencePenalty": 9}, "sampling.presence_penalty"),
        ({"logprobs": 21}, "sampling.logprobs"),
        ({"logitBias": {4_000_000: 1}}, "sampling.logit_bias"),
        ({"stopTokenIds": [4_000_000]}, "sampling.stop_token_ids"),
        ({"stop": [str(i) for i in range(1000)]}, "sampling.stop"),
        ({"stop": [""]}, "sampling.stop"),
        ({"maxTokens": 0}, "sampling.max_tokens"),
    ]:
        assert refused(cluster, tokens=ids, sampling=sampling) == (INVALID, "INVALID_FIELD", field)


def test_a_prompt_that_just_fits_works(cluster, context):
    out, last = cluster.inference().tokens([5] * (context - 1), temperature=0, ignoreEos=True)
    assert len(out) == 1 and last.usage.prompt_tokens == context - 1


def test_http(cluster):
    def post(body: bytes, path="/v1/completions"):
        answer = httpx.post(
            f"{cluster.http}{path}", content=body, headers={"content-type": "application/json"}, timeout=30
        )
        works(cluster)
        error = answer.json()["error"]
        return answer.status_code, error["param"], error["message"]

    def body(**fields):
        return json.dumps({"model": MODEL.name, "prompt": "a", **fields}).encode()

    assert post(body(max_tokens=-5))[:2] == (400, "max_tokens")
    assert post(body(prompt=""))[:2] == (400, "prompt")
    assert post(body(stop=["x"] * 1000))[:2] == (400, "stop")
    assert post(body(temperature="warm"))[:2] == (400, "temperature")
    assert post(b'{"model": "k3-demo", "prompt": "a", "temperature": NaN}')[0] == 400
    assert post(b'{"model": "k3-demo", "prompt": "\xff\xfe"}')[0] == 400
    assert post(b'{"model": ')[0] == 400
    assert post(body(prompt="a" * 10_000_000))[0] == 413
    chat = json.dumps({"model": MODEL.name, "messages": []}).encode()
    assert post(chat, "/v1/chat/completions")[:2] == (400, "messages")
    odd = json.dumps({"model": MODEL.name, "messages": [{"role": "wizard", "content": "a"}]}).encode()
    assert post(odd, "/v1/chat/completions")[:2] == (400, "messages[0].role")
