"""Several answers to one request become one stream that delivers every token once."""

from __future__ import annotations

from . import reason
from .error import TandemError
from .v1.inference_pb2 import GenerateResponse


class Splice:
    """Knows what was delivered.

    A further answer to the same request has to begin with exactly those tokens and that text, which are left out; then all that is
    delivered is what that answer says.
    """

    def __init__(self) -> None:
        self.ids: list[int] = []
        self._text = ""
        self._sequence = 0
        self.begin()

    def begin(self) -> None:
        """A new answer begins."""
        self._expected = 0
        self._ids_seen = 0
        self._text_seen = 0

    def accept(self, response: GenerateResponse) -> GenerateResponse | None:
        """What is new in the answer's next response, if anything is."""
        if response.sequence != self._expected:
            raise TandemError(
                reason.MALFORMED, f"response {self._expected} of the stream is missing; {response.sequence} came"
            )
        self._expected += 1
        old_ids = self.ids[self._ids_seen : self._ids_seen + len(response.token_ids)]
        old_text = self._text[self._text_seen : self._text_seen + len(response.text)]
        self._ids_seen += len(response.token_ids)
        self._text_seen += len(response.text)
        same = list(response.token_ids[: len(old_ids)]) == old_ids and response.text.startswith(old_text)
        whole = self._ids_seen >= len(self.ids) and self._text_seen >= len(self._text)
        if not same or (response.HasField("finish") and not whole):
            raise TandemError(reason.DIVERGED, "the answer to the same request does not begin with what was delivered")
        fresh = GenerateResponse()
        fresh.CopyFrom(response)
        del fresh.token_ids[: len(old_ids)]
        del fresh.logprobs[: len(old_ids)]
        fresh.text = response.text[len(old_text) :]
        if not (fresh.token_ids or fresh.text or fresh.HasField("finish")):
            return None
        fresh.sequence = self._sequence
        self._sequence += 1
        self.ids += fresh.token_ids
        self._text += fresh.text
        return fresh
