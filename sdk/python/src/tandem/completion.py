"""A whole answer."""

from __future__ import annotations

import dataclasses

from .v1.inference_pb2 import Finish, GenerateResponse, Timing, Usage
from .v1.sampling_pb2 import Logprobs


@dataclasses.dataclass
class Completion:
    """What a generation delivered, put together."""

    request_id: str = ""
    token_ids: list[int] = dataclasses.field(default_factory=list)
    text: str = ""
    logprobs: list[Logprobs] = dataclasses.field(default_factory=list)
    """One entry a token when asked for."""
    finish: Finish = dataclasses.field(default_factory=Finish)
    usage: Usage = dataclasses.field(default_factory=Usage)
    timing: Timing = dataclasses.field(default_factory=Timing)

    def add(self, response: GenerateResponse) -> None:
        """Appends a response of the stream."""
        self.request_id = response.request_id
        self.token_ids += response.token_ids
        self.text += response.text
        self.logprobs += response.logprobs
        if response.HasField("finish"):
            self.finish, self.usage, self.timing = response.finish, response.usage, response.timing
