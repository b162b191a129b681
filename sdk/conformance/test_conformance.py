"""Every SDK does what the table says, and the same as the others."""

import concurrent.futures
import json
import os
import pathlib
import subprocess

import pytest
import yaml
from google.protobuf import json_format
from tandem import GenerateRequest

from check import Answer, check
from sdks import EXAMPLES, ROOT
from stage import Stage

CASES = yaml.safe_load(pathlib.Path(__file__).with_name("cases.yaml").read_text())


def asked(case: dict, model: str, recorded: list[dict]) -> tuple[GenerateRequest, list[int] | None]:
    """A case's request as a message, and the tokens that are recorded for it."""
    fields, prompt, tokens = {"model": model, **case.get("request", {})}, [], None
    if "recorded" in fields:
        entry = recorded[fields.pop("recorded")]
        prompt, tokens = entry["prompt_ids"], entry["generated_ids"]
    if "repeat" in fields:
        prompt = [7] * fields.pop("repeat")
    request = json_format.ParseDict(fields, GenerateRequest())
    if prompt:
        request.tokens.ids.extend(prompt)
    return request, tokens


def generated(request: GenerateRequest, router: str) -> list[int]:
    """What the cluster's own client draws."""
    sampling = request.sampling
    line = {field.name: value for field, value in sampling.ListFields() if field.name not in ("logprobs", "temperature")}
    line["temperature"] = sampling.temperature
    line |= {"prompt": request.text} if request.text else {"prompt_ids": list(request.tokens.ids)}
    done = subprocess.run(
        [ROOT / "target/release/tandem", "generate", "--url", router, "--json", "--input", "-"],
        input=json.dumps(line), capture_output=True, text=True, timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["token_ids"]


def test_examples_run(cluster, sdks):
    router = cluster.state["router"]["grpc"]
    for name in sorted({sdk.name for sdk in sdks} & set(EXAMPLES)):
        environment = {**os.environ, "TANDEM_URL": router}
        done = subprocess.run([*EXAMPLES[name], "In", "the"], capture_output=True, text=True, timeout=120, cwd=ROOT, env=environment)
        assert done.returncode == 0 and done.stdout.strip(), (name, done)
        assert "tokens, first after" in done.stderr, name


@pytest.mark.parametrize("case", CASES, ids=[case["name"].replace(" ", "-") for case in CASES])
def test_case(case, cluster, sdks, authorities, recorded):
    expected = case["expect"]
    request, tokens = asked(case, cluster.model.name, recorded)
    if expected.get("tokens") == "generate":
        tokens = generated(request, cluster.state["router"]["grpc"])
    with Stage(case, [sdk.name for sdk in sdks], cluster, authorities) as stage:
        line = {"call": case.get("call", "generate"), "request": request, **case.get("client", {})}
        if "tls" in case:
            line["ca"] = str(authorities["ours"] / "ca.crt")
        with concurrent.futures.ThreadPoolExecutor(len(sdks)) as pool:
            said = list(pool.map(lambda sdk: sdk.ask({"url": stage.urls[sdk.name], **line}), sdks))
        if "idle_within" in expected:
            cluster.wait_idle(expected["idle_within"])
        answers = {sdk.name: Answer(one) for sdk, one in zip(sdks, said)}
        for name, answer in answers.items():
            print(name, answer.error, answer.text, f"{answer.said['seconds']:.2f} s")
            check(answer, expected, tokens)
            if other := stage.others.get(name):
                meanwhile(other, expected)
    drawn = {tuple(answer.ids) for answer in answers.values()}
    if expected.get("tokens") == "different":
        assert len(drawn) == len(sdks)
    elif "tokens" in expected:
        assert len(drawn) == 1


def meanwhile(other, expected: dict):
    """What a played router was asked, or how often a breaking connection was made."""
    if "calls" in expected:
        assert len(other.requests) == expected["calls"]
        assert len(set(other.requests)) <= 1, "asked again, a request is the same, its id and seed included"
    if "authorization" in expected:
        assert other.authorization == [expected["authorization"]]
    if "connections" in expected:
        assert other.connections >= expected["connections"]
