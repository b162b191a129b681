"""How far a generation is: what was delivered, and what an error means then."""

from __future__ import annotations

import grpc

from . import reason
from .error import TandemError
from .retry import Calls
from .splice import Splice
from .v1.inference_pb2 import GenerateResponse


class Progress:
    """Shared by the clients for threads and for asyncio."""

    def __init__(self, request_id: str, calls: Calls):
        self.request_id = request_id
        self.over = False
        self._calls = calls
        self._splice = Splice()

    def begin(self) -> None:
        """The request is asked again."""
        self._splice.begin()

    def accept(self, response: GenerateResponse | None) -> GenerateResponse | None:
        """What is new in a response; None as a response is the stream's end, which comes after the finish only."""
        if response is None:
            raise TandemError(reason.MALFORMED, "the stream ended without a finish")
        fresh = self._splice.accept(response)
        self.over = fresh is not None and fresh.HasField("finish")
        return fresh

    def recover(self, cause: grpc.RpcError | TandemError) -> float:
        """Seconds to wait before the request is asked again; raises if the generation ends here."""
        error = self._named(cause if isinstance(cause, TandemError) else TandemError.from_call(cause))
        delay = self._calls.after(error)
        if delay is None:
            self.over = True
            raise error from cause
        return delay

    def cancelled(self) -> TandemError:
        """The generation ends because its user said so."""
        self.over = True
        return self._named(
            TandemError(reason.CANCELLED, "cancelled by the client", code=grpc.StatusCode.CANCELLED)
        )

    def _named(self, error: TandemError) -> TandemError:
        error.request_id = self.request_id
        error.delivered = len(self._splice.ids)
        return error
