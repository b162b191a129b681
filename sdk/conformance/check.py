"""Whether an SDK's answer is what a case expects."""

import base64

import grpc
from tandem import Finish, FinishReason, GenerateResponse
from tandem.v1.errors_pb2 import ErrorReason


class Answer:
    """What a runner said, read."""

    def __init__(self, said: dict):
        self.said = said
        self.error = said.get("error")
        self.responses = [GenerateResponse.FromString(base64.b64decode(one)) for one in said["responses"]]
        self.ids = [token for response in self.responses for token in response.token_ids]
        self.text = "".join(response.text for response in self.responses)
        self.finish = self.responses[-1].finish if self.responses else Finish()
        if whole := said.get("completion"):
            self.ids, self.text = whole["token_ids"], whole["text"]
            self.finish = Finish.FromString(base64.b64decode(whole["finish"]))

    def reason(self) -> str:
        return FinishReason.Name(self.finish.reason).removeprefix("FINISH_REASON_")


def check(answer: Answer, expected: dict, tokens: list[int] | None):
    """All that can be said of one SDK's answer. `tokens`: those that the cluster's own client draws, where the case asks for them."""
    said = answer.said
    if "refused" in expected:
        assert expected["refused"] in said["refused"]
        return
    assert "refused" not in said, said["refused"]
    order(answer, ended="error" not in expected)
    if "error" in expected:
        failed(answer, expected["error"])
    else:
        assert answer.error is None, answer.error
    if tokens is not None:
        assert answer.ids == tokens
    if "ids" in expected:
        assert answer.ids == expected["ids"]
    if "text" in expected:
        assert answer.text == expected["text"]
    if "sequences" in expected:
        assert len(answer.responses) == expected["sequences"]
    if "finish" in expected:
        assert answer.reason() == expected["finish"]
    if "stop_sequence" in expected:
        assert answer.finish.stop_sequence == expected["stop_sequence"]
    if "request_id" in expected:
        assert {response.request_id for response in answer.responses} == {expected["request_id"]}
    if "characters" in expected:
        assert set(answer.text) == set(expected["characters"])
    for name, value in expected.get("usage", {}).items():
        assert getattr(answer.responses[-1].usage, name) == value, name
    if "logprobs" in expected:
        logprobs(answer, expected["logprobs"])
    if "models" in expected:
        assert len(said["models"]) == expected["models"]
    if "reasons" in expected:
        contract = [name.removeprefix("ERROR_REASON_") for name in ErrorReason.keys()[1:]]
        assert said["reasons"] == sorted([*contract, *expected["reasons"]])
    assert said["seconds"] >= expected.get("at_least", 0)
    assert said["seconds"] <= expected.get("within", 60)


def order(answer: Answer, ended: bool):
    """Responses are numbered without a gap, of one request, and only the last one has a finish."""
    for sequence, response in enumerate(answer.responses):
        assert response.sequence == sequence
        assert response.request_id == answer.responses[0].request_id != ""
        last = sequence + 1 == len(answer.responses)
        assert response.HasField("finish") == (ended and last)


def failed(answer: Answer, expected: dict):
    error = answer.error
    assert error is not None, "no error came"
    assert error["message"] and (error["request_id"] or answer.said.get("models") is None)
    assert error["delivered"] == len(answer.ids), "the error says how many tokens came before it"
    for name, value in expected.items():
        if name == "code":
            value = grpc.StatusCode[value].value[0]
        if name == "delivered" and value == "some":
            assert error["delivered"] > 0
        elif isinstance(value, float):
            assert abs(error[name] - value) < 1e-6, error
        else:
            assert error[name] == value, error


def logprobs(answer: Answer, top: int):
    entries = [entry for response in answer.responses for entry in response.logprobs]
    assert [entry.chosen.token_id for entry in entries] == answer.ids
    assert all(entry.chosen.logprob <= 0 and len(entry.top) == top for entry in entries)
