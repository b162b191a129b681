"""One request is one trace, from its client's through every process, in a real collector."""

import secrets

import httpx
import pytest

from collector import Collector
from conftest import Cluster

PROMPT_TOKENS = 900


@pytest.fixture(scope="module")
def collector():
    running = Collector()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def traced(tmp_path_factory, collector):
    flags = (f"--{program}-flag=--otlp={collector.endpoint}" for program in ("router", "prefill", "decode"))
    running = Cluster(tmp_path_factory.mktemp("traced"), more=tuple(flags))
    yield running
    running.stop()


def test_a_request_is_one_trace_and_only_the_state_is_left_when_prefill_ends(traced, collector):
    trace, client = secrets.token_bytes(16), secrets.token_bytes(8)
    prompt = [5 + position % 97 for position in range(PROMPT_TOKENS)]
    response = httpx.post(
        f"{traced.http}/v1/completions",
        headers={"traceparent": f"00-{trace.hex()}-{client.hex()}-01"},
        json={"model": "k3-demo", "prompt": prompt, "max_tokens": 40, "temperature": 0},
        timeout=60,
    )
    assert response.status_code == 200, response.text
    expected = {"generate", "admit", "attempt", "Decode.Reserve", "Prefill.Run", "prefill", "transfer", "tail",
                "Decode.Run", "receive", "decode"}
    spans = {span.name: span for span in collector.trace(trace, expected.issubset)}

    assert {name: span.service for name, span in spans.items()} == {
        "generate": "tandem-router", "admit": "tandem-router", "attempt": "tandem-router",
        "Prefill.Run": "tandem-prefill-worker", "prefill": "tandem-prefill-worker",
        "transfer": "tandem-prefill-worker", "tail": "tandem-prefill-worker",
        "Decode.Reserve": "tandem-decode-worker", "Decode.Run": "tandem-decode-worker",
        "receive": "tandem-decode-worker", "decode": "tandem-decode-worker",
    }
    parents = {
        "admit": "generate", "attempt": "generate", "Decode.Reserve": "attempt", "Prefill.Run": "attempt",
        "Decode.Run": "attempt", "prefill": "Prefill.Run", "transfer": "Prefill.Run", "tail": "transfer",
        "receive": "Decode.Run", "decode": "Decode.Run",
    }
    assert spans["generate"].parent == client
    assert {name: spans[parent].id for name, parent in parents.items()} == {
        name: spans[name].parent for name in parents
    }

    prefill, transfer, tail = spans["prefill"], spans["transfer"], spans["tail"]
    assert prefill.start < transfer.start < prefill.end, "latents leave while prefill runs"
    assert tail.start >= prefill.end and tail.end <= transfer.end + 1_000_000
    sent = transfer.attributes["bytes"]
    assert tail.attributes["state_bytes"] + tail.attributes["latent_bytes"] < sent / 2
    # of the latents at most the last chunk's are left
    latents = sent - tail.attributes["state_bytes"]
    assert tail.attributes["latent_bytes"] <= latents * 256 / PROMPT_TOKENS
    assert spans["decode"].start >= spans["receive"].end
    assert spans["decode"].attributes["tokens"] == 39
