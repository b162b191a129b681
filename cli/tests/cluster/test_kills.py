"""Workers killed at random moments under load: every answer equals the undisturbed one, token for token.

`TANDEM_TEST_KILLS` says how many are killed (6); `pytest -rP` shows the longest pause of a stream.
"""

import concurrent.futures
import dataclasses
import os
import random
import signal
import threading
import time

import grpc
import httpx

from conftest import MODEL

KILLS = int(os.environ.get("TANDEM_TEST_KILLS", "6"))
CLIENTS = 6
# The longest that a stream may say nothing: the router waits that long for a worker when both of a role are dead.
PAUSE = 60.0

SAMPLED = {"temperature": 0.9, "topP": 0.95, "seed": "7"}
PENALISED = {"repetitionPenalty": 1.3, "frequencyPenalty": 0.6, "presencePenalty": 0.2}
KINDS = (
    {"temperature": 0},
    {"temperature": 0, "logprobs": 2},
    SAMPLED,
    {**SAMPLED, "seed": "8", "logprobs": 1},
    {**SAMPLED, **PENALISED},
    {"temperature": 0, **PENALISED},
    {**SAMPLED, "stop": ["the", "ing "]},
)


@dataclasses.dataclass
class Answer:
    """All that a client sees of an answer but how it was cut into deltas."""

    ids: list[int]
    text: str
    logprobs: list[float]
    finish: tuple[int, str]
    usage: tuple[int, int]
    longest: float = 0.0

    def check(self, right: "Answer"):
        assert (self.ids, self.text, self.finish, self.usage) == (right.ids, right.text, right.finish, right.usage)
        assert len(self.logprobs) == len(right.logprobs)
        assert all(abs(a - b) < 1e-3 for a, b in zip(self.logprobs, right.logprobs))


def requests() -> list[dict]:
    rng = random.Random(4)
    made = []
    for index in range(3 * len(KINDS)):
        prompt = [rng.randrange(6, 2000) for _ in range(rng.choice((5, 100, 700)))]
        sampling = {**KINDS[index % len(KINDS)], "maxTokens": rng.choice((40, 150, 300)), "ignoreEos": True}
        made.append({"tokens": {"ids": prompt}, "sampling": sampling})
    return made


def ask(client, request, cancel_after=None) -> Answer | None:
    """The answer to a request; None if it was cancelled before its end."""
    stream = client.generate(timeout=300, **request)
    if cancel_after is not None:
        threading.Timer(cancel_after, stream.cancel).start()
    answer, heard = Answer([], "", [], (0, ""), (0, 0)), time.monotonic()
    try:
        for sequence, response in enumerate(stream):
            assert response.sequence == sequence, "deltas are numbered without a gap"
            now = time.monotonic()
            answer.longest, heard = max(answer.longest, now - heard), now
            answer.ids += response.token_ids
            answer.text += response.text
            answer.logprobs += [entry.chosen.logprob for entry in response.logprobs]
            if response.HasField("finish"):
                answer.finish = (response.finish.reason, response.finish.stop_sequence)
                answer.usage = (response.usage.prompt_tokens, response.usage.completion_tokens)
                return answer
    except grpc.RpcError as error:
        if cancel_after is None or error.code() != grpc.StatusCode.CANCELLED:
            raise
        return None
    raise AssertionError("a silent end")


def choices(cluster) -> dict:
    """Two sampled choices over HTTP."""
    body = {"model": MODEL.name, "prompt": [9, 8, 7], "max_tokens": 120, "n": 2, "seed": 3, "logprobs": 1}
    response = httpx.post(f"{cluster.http}/v1/completions", json=body, timeout=300)
    assert response.status_code == 200, response.text
    whole = response.json()
    # how many drafts were accepted depends on where the cut was; nothing else does
    usage = {name: whole["usage"][name] for name in ("prompt_tokens", "completion_tokens")}
    return {"text": [choice["text"] for choice in whole["choices"]], "usage": usage}


def kill(cluster, rng, answered, over):
    """Kills one worker after another, now and then two at once.

    Each is back, and a few answers are whole, before the next: however slow the machine is, no request is under all kills.
    """
    for count in range(KILLS):
        whole = answered[0]
        time.sleep(rng.random() * 1.5)
        cluster.wait(lambda: over.is_set() or answered[0] >= whole + CLIENTS, 300, "answers")
        if over.is_set():
            return
        together = 2 if count % 5 == 4 else 1
        victims = rng.sample(cluster.state["workers"], together)
        for victim in victims:
            os.kill(victim["pid"], signal.SIGKILL)
            time.sleep(rng.random() * 0.2)
        for victim in victims:
            cluster.wait(lambda: cluster.is_back(victim), 120, "restarted worker")
    over.set()


def test_no_request_fails_because_workers_are_killed(pairs):
    client = pairs.inference()
    asked = requests()
    right = [ask(client, request) for request in asked]
    right_choices = choices(pairs)
    before = pairs.migrations()
    over, answered = threading.Event(), [0]

    def load(number):
        try:
            return under_load(random.Random(number), number)
        finally:
            over.set()

    def under_load(rng, number):
        longest, answers, cancelled = 0.0, 0, 0
        while not over.is_set():
            if number == 0 and rng.random() < 0.3:
                assert choices(pairs) == right_choices
                answers += 1
                answered[0] += 1
                continue
            index = rng.randrange(len(asked))
            answer = ask(client, asked[index], rng.random() * 3 if rng.random() < 0.15 else None)
            if answer is None:
                cancelled += 1
                continue
            answer.check(right[index])
            longest, answers = max(longest, answer.longest), answers + 1
            answered[0] += 1
        return longest, answers, cancelled

    with concurrent.futures.ThreadPoolExecutor(CLIENTS + 1) as pool:
        loads = [pool.submit(load, number) for number in range(CLIENTS)]
        try:
            kill(pairs, random.Random(6), answered, over)
        finally:
            over.set()
        done = [future.result(330) for future in loads]
    longest = max(pause for pause, _, _ in done)
    answers, cancelled = sum(count for _, count, _ in done), sum(count for _, _, count in done)
    router = pairs.state["router"]["http"]
    migrations = pairs.migrations() - before
    print(f"{KILLS} kills, {answers} answers, {cancelled} cancelled, {migrations:.0f} migrations, longest pause {longest:.2f} s")
    assert migrations >= KILLS / 4, "kills hit requests"
    assert longest < PAUSE
    outcomes = [line for line in httpx.get(f"http://{router}/metrics").text.splitlines() if "requests_total{" in line]
    assert all("finished" in line or "cancelled" in line for line in outcomes), outcomes
    time.sleep(0.5)
    pairs.wait_idle(5)
