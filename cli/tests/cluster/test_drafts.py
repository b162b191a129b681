"""Drafts change speed, never the text, and a hand-over changes neither: not the tokens, not how many drafts are accepted."""

import concurrent.futures

import grpc
import pytest

from conftest import MODELS, Cluster, recorded_of, single_process
from inference import fault

GREEDY = {"temperature": 0}
SAMPLED = {"temperature": 0.8}


@pytest.fixture(scope="module", params=MODELS, ids=lambda model: model.name)
def requests(request):
    """A model, and requests to it: short prompts, whole ones, and an answer over several pages and many pools; half of them
    greedy."""
    prompts = [entry["prompt_ids"] for entry in recorded_of(request.param)[:10]]
    shapes = [(prompts[0][:length], 40) for length in (1, 2, 3, 4, 5)]
    shapes += [(prompt, 64) for prompt in prompts[1:]] + [(prompts[0], 280)]
    made = [
        dict((GREEDY, SAMPLED)[index % 2], prompt_ids=prompt, max_tokens=tokens, seed=100 + index, ignore_eos=True)
        for index, (prompt, tokens) in enumerate(shapes)
    ]
    return request.param, made


def through_a_cluster(folder, model, requests, concurrency, *more):
    """Tokens of each request, and its drafted and accepted tokens."""
    running = Cluster(folder, more=more, model=model)
    try:
        client = running.inference()

        def one(request):
            tokens, last = client.tokens(
                request["prompt_ids"], temperature=request["temperature"], seed=str(request["seed"]),
                maxTokens=request["max_tokens"], ignoreEos=True,
            )
            assert last.usage.completion_tokens == len(tokens)
            return tokens, (last.usage.drafted_tokens, last.usage.accepted_tokens)

        with concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
            return list(pool.map(one, requests))
    finally:
        running.stop()


def test_a_cluster_drafts_as_one_process_does(requests, tmp_path_factory):
    model, requests = requests
    fresh = tmp_path_factory.mktemp
    alone = through_a_cluster(fresh("alone"), model, requests, 1)
    local = [
        (one["token_ids"], (one["drafted_tokens"], one["accepted_tokens"]))
        for one in single_process(requests, model)
    ]
    assert alone == local, "tokens, and how many drafts are accepted"
    judged = {tuple(entry["prompt_ids"]): entry["generated_ids"] for entry in recorded_of(model)}
    greedy = [pair for pair in zip(requests, alone) if pair[0]["temperature"] == 0]
    for request, (tokens, _) in greedy:
        right = judged.get(tuple(request["prompt_ids"]), [])[: len(tokens)]
        assert tokens[: len(right)] == right, "what an outside implementation writes"
    counts = [counts for _, counts in alone]
    assert all(0 <= accepted <= drafted and drafted > 0 for drafted, accepted in counts), counts
    assert sum(accepted for _, accepted in counts) > 0, "a draft layer that never is right got no state"

    # eight at a time, in one batch, and in chunks of another length
    off = ("--drafts=0", "--prefill-flag=--chunks=64", "--decode-flag=--batches=8")
    undrafted = through_a_cluster(fresh("undrafted"), model, requests, 8, *off)
    assert {counts for _, counts in undrafted} == {(0, 0)}
    assert [tokens for tokens, _ in undrafted] == [tokens for tokens, _ in alone]


def test_workers_that_differ_in_their_draft_layer_are_not_paired(tmp_path):
    running = Cluster(tmp_path, more=("--prefill-flag=--drafts=0", "--prefill-flag=--chunks=16", "--decode-flag=--batches=2"))
    try:
        with pytest.raises(grpc.RpcError) as refused:
            running.inference().tokens([5, 6, 7], maxTokens=2)
        assert fault(refused.value) == ("MISMATCH", "fingerprint.drafts")
    finally:
        running.stop()
