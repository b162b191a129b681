"""The official client is the judge of the HTTP API."""

import openai
import pytest

from conftest import MODEL


@pytest.fixture(scope="module")
def client(cluster):
    return openai.OpenAI(base_url=f"{cluster.http}/v1", api_key="none", max_retries=0)


def test_models(client):
    assert [model.id for model in client.models.list()] == [MODEL.name]


def test_completion_streamed_and_whole_agree(client):
    options = dict(model=MODEL.name, prompt="And it came to pass", max_tokens=40, temperature=0.7, seed=5)
    whole = client.completions.create(**options)
    assert whole.usage.completion_tokens <= 40 and whole.usage.prompt_tokens > 3
    assert whole.choices[0].finish_reason in ("length", "stop")
    assert whole.timing["prefill"] > 0
    drafts = whole.usage.completion_tokens_details
    assert drafts.accepted_prediction_tokens + drafts.rejected_prediction_tokens > 0
    text, usage, finish = "", None, None
    for chunk in client.completions.create(**options, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.text
            finish = choice.finish_reason or finish
    assert text == whole.choices[0].text and len(text) > 20
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.completion_tokens_details == drafts
    assert finish == whole.choices[0].finish_reason


def test_chat_streamed_and_whole_agree(client):
    options = dict(
        model=MODEL.name, max_tokens=24, temperature=0, seed=1,
        messages=[{"role": "system", "content": "Speak."}, {"role": "user", "content": "Who made the heaven?"}],
    )
    whole = client.chat.completions.create(**options)
    assert whole.choices[0].message.role == "assistant"
    text = ""
    for chunk in client.chat.completions.create(**options, stream=True):
        text += chunk.choices[0].delta.content or ""
    assert text == whole.choices[0].message.content


def test_logprobs_and_choices(client):
    done = client.completions.create(
        model=MODEL.name, prompt=[5, 6, 7], max_tokens=6, temperature=0, logprobs=3, n=2, seed=3
    )
    assert [choice.index for choice in done.choices] == [0, 1]
    given = done.choices[0].logprobs
    assert len(given.tokens) == len(given.token_logprobs) == len(given.top_logprobs)
    for chosen, top in zip(given.token_logprobs, given.top_logprobs):
        assert chosen <= 0 and abs(max(top.values()) - chosen) < 1e-5, "greedy draws the likeliest"
    chat = client.chat.completions.create(
        model=MODEL.name, messages=[{"role": "user", "content": "Go"}],
        max_tokens=4, logprobs=True, top_logprobs=2, temperature=0,
    )
    for token in chat.choices[0].logprobs.content:
        assert len(token.top_logprobs) == 2 and token.top_logprobs[0].logprob == token.logprob


def test_stop_strings_end_the_text_before_them(client):
    options = dict(model=MODEL.name, prompt="And the LORD said", max_tokens=60, temperature=0)
    free = client.completions.create(**options).choices[0].text
    stop = free[12:17]
    stopped = client.completions.create(**options, stop=[stop]).choices[0]
    assert stopped.text == free[: free.index(stop)]
    assert stopped.finish_reason == "stop"


def test_errors_have_openai_shape_and_name_the_field(client):
    with pytest.raises(openai.NotFoundError) as unknown:
        client.completions.create(model="gpt-9", prompt="a", max_tokens=1)
    assert unknown.value.body["code"] == "UNKNOWN_MODEL"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.completions.create(model=MODEL.name, prompt="a", max_tokens=1, top_p=7)
    assert wrong.value.body["param"] == "top_p"
