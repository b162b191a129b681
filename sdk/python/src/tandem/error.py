"""The one error of this package, and how a status becomes it."""

from __future__ import annotations

from typing import Any

import grpc
from google.rpc import status_pb2
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo

from . import reason as reasons

_DOMAIN = "tandem"
_DETAILS = "grpc-status-details-bin"
# What a status without a reason of ours says: it comes from a library or a proxy on the way, never from a router.
_BY_CODE = {
    grpc.StatusCode.UNAVAILABLE: reasons.UNREACHABLE,
    grpc.StatusCode.UNKNOWN: reasons.UNREACHABLE,
    grpc.StatusCode.INTERNAL: reasons.UNREACHABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: reasons.DEADLINE,
}


class TandemError(Exception):
    """A call failed."""

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        code: grpc.StatusCode = grpc.StatusCode.UNKNOWN,
        field: str = "",
        retry_after: float | None = None,
    ):
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        """One of `tandem.reason`, or a newer router's."""
        self.message = message
        self.code = code
        self.field = field
        """The request's field that is to blame, by its path, such as `sampling.top_p`; may be empty."""
        self.retry_after = retry_after
        """Seconds after which asking again can help; None if it can't."""
        self.request_id = ""
        """Names the request in the router's logs."""
        self.delivered = 0
        """Tokens that were delivered before."""

    @property
    def again(self) -> bool:
        """Whether the same request may be asked again."""
        return self.retry_after is not None or self.reason == reasons.UNREACHABLE

    @classmethod
    def from_call(cls, call: grpc.RpcError) -> TandemError:
        """Reads the status that a call ended with."""
        code, message = call.code(), call.details() or ""
        info, retry = _details(call.trailing_metadata())
        if info is None:
            return cls(_BY_CODE.get(code, code.name), message, code=code)
        after = None if retry is None else retry.retry_delay.ToTimedelta().total_seconds()
        return cls(info.reason, message, code=code, field=info.metadata.get("field", ""), retry_after=after)


def _details(metadata: Any) -> tuple[ErrorInfo | None, RetryInfo | None]:
    info, retry = None, None
    for key, value in metadata or ():
        if key != _DETAILS:
            continue
        for detail in status_pb2.Status.FromString(value).details:
            if detail.Is(ErrorInfo.DESCRIPTOR):
                info = ErrorInfo.FromString(detail.value)
            elif detail.Is(RetryInfo.DESCRIPTOR):
                retry = RetryInfo.FromString(detail.value)
    return (info, retry) if info is not None and info.domain == _DOMAIN else (None, None)
