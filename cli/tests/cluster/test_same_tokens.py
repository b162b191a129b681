"""The cluster draws the tokens that an outside implementation draws, and that one process draws, whatever the batch mates."""

import concurrent.futures

import pytest

from conftest import single_process

GREEDY = {"temperature": 0, "ignoreEos": True}


def run(cluster, entries, concurrency, sampling):
    client = cluster.inference()

    def one(pair):
        index, entry = pair
        options = dict(sampling, maxTokens=len(entry["generated_ids"]))
        if "seed" in options:
            options["seed"] = str(int(options["seed"]) + index)
        return client.tokens(entry["prompt_ids"], **options)[0]

    with concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
        return list(pool.map(one, enumerate(entries)))


def local(entries, sampling):
    requests = []
    for index, entry in enumerate(entries):
        request = dict(sampling, prompt_ids=entry["prompt_ids"], max_tokens=len(entry["generated_ids"]))
        if "seed" in request:
            request["seed"] += index
        requests.append(request)
    return [one["token_ids"] for one in single_process(requests)]


@pytest.mark.parametrize("concurrency", [1, 8])
def test_greedy_equals_the_judge(cluster, recorded, concurrency):
    assert len(recorded) >= 50
    drawn = run(cluster, recorded, concurrency, GREEDY)
    wrong = [i for i, (entry, out) in enumerate(zip(recorded, drawn)) if out != entry["generated_ids"]]
    assert wrong == []


def test_sampled_equals_one_process_at_any_concurrency(cluster, recorded):
    sampling = {"temperature": 0.8, "topP": 0.95, "topK": 50, "seed": 1000, "ignoreEos": True}
    some = recorded[::2]
    alone = run(cluster, some, 1, sampling)
    together = run(cluster, some, 8, sampling)
    one_process = local(
        some, {"temperature": 0.8, "top_p": 0.95, "top_k": 50, "seed": 1000, "ignore_eos": True}
    )
    assert alone == together
    assert alone == one_process
    assert len({tuple(out) for out in alone}) > 20, "different prompts and seeds draw different tokens"
