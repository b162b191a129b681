"""When a request is asked again, and after how long."""

from __future__ import annotations

import dataclasses
import random
import time

from .error import TandemError


@dataclasses.dataclass(frozen=True)
class Retry:
    """Bounds of asking again. What may be asked again at all is no choice: see `TandemError.again`."""

    calls: int = 5
    """Calls a request makes at most; 1 never asks again."""
    initial_backoff: float = 0.1
    """Seconds before the second call; doubles with each further one. An error's `retry_after` is waited for at least."""
    max_backoff: float = 5.0
    """Longest backoff, in seconds."""
    resume: bool = True
    """Ask again also after tokens were delivered, and deliver the rest of an answer that begins with them."""


class Calls:
    """The calls of one request, under one deadline."""

    def __init__(self, retry: Retry, timeout: float | None):
        self._retry = retry
        self._made = 1
        self._until = None if timeout is None else time.monotonic() + timeout

    def remaining(self) -> float | None:
        """Seconds that the next call may take."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    def after(self, error: TandemError) -> float | None:
        """Seconds to wait before the next call; None if this error is the end."""
        if not error.again or self._made >= self._retry.calls or (error.delivered and not self._retry.resume):
            return None
        backoff = min(self._retry.max_backoff, self._retry.initial_backoff * 2.0 ** (self._made - 1))
        # Clients that failed together don't come back together.
        delay = max(error.retry_after or 0.0, backoff) * random.uniform(1.0, 1.5)
        remaining = self.remaining()
        if remaining is not None and remaining <= delay:
            return None
        self._made += 1
        return delay
