"""The cluster draws the tokens that HF transformers draws, and that one process draws, whatever the batch mates."""

import concurrent.futures
import json
import subprocess

import pytest

from conftest import MODEL, ROOT, TANDEM

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


def single_process(entries, sampling):
    lines = []
    for index, entry in enumerate(entries):
        line = dict(sampling, prompt_ids=entry["prompt_ids"], max_tokens=len(entry["generated_ids"]))
        if "seed" in line:
            line["seed"] += index
        lines.append(json.dumps(line))
    done = subprocess.run(
        [TANDEM, "generate", "--single-process", "--model-dir", MODEL, "--json", "--input", "-"],
        input="\n".join(lines), capture_output=True, text=True, cwd=ROOT, check=True, timeout=300,
    )
    return [json.loads(line)["token_ids"] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("concurrency", [1, 8])
def test_greedy_equals_transformers(cluster, recorded, concurrency):
    assert len(recorded) >= 50
    drawn = run(cluster, recorded, concurrency, GREEDY)
    wrong = [i for i, (entry, out) in enumerate(zip(recorded, drawn)) if out != entry["generated_ids"]]
    assert wrong == []


def test_sampled_equals_one_process_at_any_concurrency(cluster, recorded):
    sampling = {"temperature": 0.8, "topP": 0.95, "topK": 50, "seed": 1000, "ignoreEos": True}
    alone = run(cluster, recorded, 1, sampling)
    together = run(cluster, recorded, 8, sampling)
    local = single_process(
        recorded, {"temperature": 0.8, "top_p": 0.95, "top_k": 50, "seed": 1000, "ignore_eos": True}
    )
    assert alone == together
    assert alone == local
    assert len({tuple(out) for out in alone}) > 40, "different prompts and seeds draw different tokens"
