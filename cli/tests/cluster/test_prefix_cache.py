"""What prompts leave behind changes how much is computed, and where, and no token."""

import concurrent.futures
import time

import pytest

from conftest import Cluster, recorded_of, single_process

UNIT = 64


@pytest.fixture(scope="module")
def keeping(tmp_path_factory):
    running = Cluster(tmp_path_factory.mktemp("keeping"), prefill=2, more=(f"--prefill-flag=--hash-unit={UNIT}",))
    yield running
    running.stop()


def conversation(cluster, first: int, length: int) -> list[int]:
    text = [token for entry in recorded_of(cluster.model) for token in entry["prompt_ids"] + entry["generated_ids"]]
    return text[first : first + length]


def ask(cluster, prompt: list[int], **fields):
    """A greedy answer of 30 tokens, how many of the prompt's were cached, and who computed the others."""
    sampling = {"temperature": 0, "maxTokens": 30, "ignoreEos": True}
    client = cluster.inference()
    tokens, last = client.collect(client.generate(tokens={"ids": prompt}, sampling=sampling, **fields))
    return tokens, last.usage.cached_tokens, last.timing.prefill_worker


def cold(cluster, prompts: list[list[int]]) -> list[list[int]]:
    requests = [dict(prompt_ids=prompt, max_tokens=30, temperature=0, ignore_eos=True) for prompt in prompts]
    return [one["token_ids"] for one in single_process(requests, cluster.model)]


def test_conversations_go_on_where_they_were_computed(keeping):
    first = [conversation(keeping, 0, 700), conversation(keeping, 900, 640)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda prompt: ask(keeping, prompt), first))
    workers = [worker for _, _, worker in answers]
    assert len(set(workers)) == 2, "two at once go to two workers"
    assert [cached for _, cached, _ in answers] == [0, 0]
    # The router hears of checkpoints a moment later.
    time.sleep(0.5)
    more = conversation(keeping, 2000, 50)
    turns = [prompt + tokens + more for prompt, (tokens, _, _) in zip(first, answers)]
    # The last one is edited in the middle, and cached up to there at most.
    turns.append(first[1][:400] + more * 3)
    asked = [ask(keeping, turn) for turn in turns]
    assert [worker for _, _, worker in asked[:2]] == workers, "each goes where it is cached"
    cached = [cached for _, cached, _ in asked]
    assert cached[:2] == [700 // UNIT * UNIT, 640], "the last whole unit of the turn before"
    assert all(cached % UNIT == 0 and cached <= 400 for cached in cached[2:])
    assert [tokens for tokens, _, _ in answers + asked] == cold(keeping, first + turns)
    hit = sum(keeping.metrics(worker["http"])["tandem_prefix_hit_tokens_total"] for worker in keeping.workers("prefill"))
    assert hit == sum(cached)
    keeping.wait_idle()


def test_the_same_prompt_again_is_hardly_computed(keeping):
    prompt = conversation(keeping, 1700, 8 * UNIT)
    tokens, cached, _ = ask(keeping, prompt)
    assert cached == 0
    time.sleep(0.5)
    again, cached, _ = ask(keeping, prompt)
    assert again == tokens
    # A prompt of whole units: the last of them is the one that must be computed.
    assert cached == 7 * UNIT


@pytest.mark.parametrize("fields", [{"tenant": "another"}, {"cacheSalt": "salt"}])
def test_tenants_and_salts_share_nothing(keeping, fields):
    prompt = conversation(keeping, 2600, 300)
    own, _, _ = ask(keeping, prompt)
    time.sleep(0.5)
    assert ask(keeping, prompt)[1] == 300 // UNIT * UNIT
    other, cached, _ = ask(keeping, prompt, **fields)
    assert (other, cached) == (own, 0)
    time.sleep(0.5)
    assert ask(keeping, prompt, **fields)[1] == 300 // UNIT * UNIT
