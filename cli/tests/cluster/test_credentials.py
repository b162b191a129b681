"""Who may ask, as whom, and how much: real clients against a router with credentials."""

import hashlib
import json
import statistics
import subprocess
import time

import grpc
import jwt
import openai
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from jwt.algorithms import OKPAlgorithm

from conftest import MODEL, ROOT, TANDEM, Cluster

KEYS = {"acme": "sk-acme-8c1f", "other": "sk-other-77e0", "small": "sk-small-0001"}
SIGNER = ed25519.Ed25519PrivateKey.generate()
PROMPT = [7 + position % 83 for position in range(1100)]


def configuration(keys: dict[str, str]) -> str:
    tenants = {name: {"keys": ["sha256:" + hashlib.sha256(key.encode()).hexdigest()]} for name, key in keys.items()}
    tenants["small"]["tokens-per-minute"] = 100
    return json.dumps({
        "tenants": tenants,
        "jwt": {"jwks": "JWKS", "issuer": "https://issuer.test", "audience": "tandem"},
    })


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guarded")
    jwks = folder / "jwks.json"
    public = {**json.loads(OKPAlgorithm.to_jwk(SIGNER.public_key())), "kid": "one", "use": "sig"}
    jwks.write_text(json.dumps({"keys": [public]}))
    file = folder / "credentials.yaml"
    file.write_text(configuration(KEYS).replace("JWKS", str(jwks)))
    running = Cluster(folder, more=("--credentials", str(file), "--log", "debug"))
    running.credentials, running.jwks = file, jwks
    yield running
    running.stop()


def client(cluster, key: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{cluster.http}/v1", api_key=key, max_retries=0)


def complete(cluster, key: str, prompt=PROMPT, max_tokens=4, **more):
    began = time.monotonic()
    answer = client(cluster, key).completions.create(
        model="k3-demo", prompt=prompt, max_tokens=max_tokens, temperature=0, extra_body=more or None,
    )
    return answer, time.monotonic() - began


def token(**claims) -> str:
    claims = {"iss": "https://issuer.test", "aud": "tandem", "exp": time.time() + 60, "tenant": "acme", **claims}
    return jwt.encode(claims, SIGNER, "EdDSA", headers={"kid": "one"})


def test_only_those_who_are_known_may_ask(guarded):
    for key in ("sk-acme-8c1", "none", token(exp=time.time() - 120), token(aud="else"), token(tenant="")):
        with pytest.raises(openai.AuthenticationError) as refused:
            complete(guarded, key)
        assert refused.value.body["code"] == "UNAUTHENTICATED"
        assert refused.value.response.headers["www-authenticate"] == "Bearer"
        with pytest.raises(openai.AuthenticationError):
            client(guarded, key).models.list()
    assert [model.id for model in client(guarded, KEYS["acme"]).models.list()] == ["k3-demo"]
    with pytest.raises(openai.PermissionDeniedError):
        complete(guarded, token(tenant="nobody"))
    wanted = complete(guarded, KEYS["acme"])[0].choices[0].text
    assert complete(guarded, token())[0].choices[0].text == wanted

    generate = [TANDEM, "generate", "--url", guarded.state["router"]["grpc"], "--max-tokens", "3", "In"]
    refused = subprocess.run(generate, capture_output=True, text=True, cwd=ROOT, timeout=30)
    assert refused.returncode != 0 and "UNAUTHENTICATED" in refused.stderr
    done = subprocess.run(generate, env={"TANDEM_API_KEY": KEYS["acme"]}, capture_output=True, cwd=ROOT, timeout=30)
    assert done.returncode == 0, done.stderr


def test_a_tenant_sees_nothing_of_anothers_prompts(guarded):
    prompts = [[11 + seed, *PROMPT] for seed in range(6)]
    cached, cold, foreign = [], [], []
    for prompt in prompts:
        first, took = complete(guarded, KEYS["acme"], prompt)
        cold.append(took)
        assert first.usage.prompt_tokens_details.cached_tokens == 0
        other, took = complete(guarded, KEYS["other"], prompt)
        foreign.append(took)
        assert other.usage.prompt_tokens_details.cached_tokens == 0
        own, took = complete(guarded, token(), prompt)
        cached.append(took)
        assert own.usage.prompt_tokens_details.cached_tokens >= 1024
        assert first.choices[0].text == other.choices[0].text == own.choices[0].text
    times = [statistics.median(each) for each in (cached, foreign, cold)]
    # Nothing of a hit: one would save most of the time.
    assert times[0] < times[1] and times[1] > times[2] * 0.7, times


def test_a_forged_tenant_changes_nothing(guarded):
    inference = guarded.inference()
    shown = (("authorization", f"Bearer {KEYS['other']}"),)
    refused = None
    try:
        list(inference.generate(tokens={"ids": PROMPT}, sampling={"max_tokens": 2}, tenant="acme", metadata=shown))
    except grpc.RpcError as error:
        refused = error
    assert refused is not None and refused.code() == grpc.StatusCode.PERMISSION_DENIED
    own = list(inference.generate(tokens={"ids": PROMPT}, sampling={"max_tokens": 2}, tenant="other", metadata=shown))
    assert own[-1].usage.completion_tokens == 2
    # A header of that name is just a header.
    answer = client(guarded, KEYS["other"]).with_options(default_headers={"tenant": "acme", "x-tenant": "acme"})
    fresh = [3, *PROMPT]
    complete(guarded, KEYS["acme"], fresh)
    answer = answer.completions.create(model="k3-demo", prompt=fresh, max_tokens=2, temperature=0)
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


def test_a_tenant_that_has_used_its_tokens_waits(guarded):
    complete(guarded, KEYS["small"], prompt=[5] * 60, max_tokens=20)
    with pytest.raises(openai.RateLimitError) as refused:
        complete(guarded, KEYS["small"], prompt=[5] * 60, max_tokens=20)
    assert refused.value.body["code"] == "RATE_LIMITED"
    assert 1 <= int(refused.value.response.headers["retry-after"]) <= 60
    complete(guarded, KEYS["acme"], prompt=[5] * 60, max_tokens=20)


def test_keys_are_replaced_while_it_runs_and_no_secret_is_logged(guarded):
    replaced = {**KEYS, "other": "sk-other-new"}
    guarded.credentials.write_text(configuration(replaced).replace("JWKS", str(guarded.jwks)))

    def known(key: str) -> bool:
        try:
            client(guarded, key).models.list()
            return True
        except openai.AuthenticationError:
            return False

    guarded.wait(lambda: known("sk-other-new"), 10, "new key in force")
    assert not known(KEYS["other"]) and known(KEYS["acme"])
    guarded.credentials.write_text("tenants: broken")
    time.sleep(3)
    assert known("sk-other-new")
    guarded.log.flush()
    log = open(guarded.log.name).read()
    assert "credentials stay as they were" in log
    for secret in [*replaced.values(), *KEYS.values()]:
        assert secret not in log
    assert "eyJ" not in log
