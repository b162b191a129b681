"""Why a call failed: the router's reasons, as docs/errors.md explains them, and those that a client finds itself.

Plain strings, so that a reason of a newer router arrives as it is.
"""

from typing import Final

INVALID_FIELD: Final = "INVALID_FIELD"
UNKNOWN_MODEL: Final = "UNKNOWN_MODEL"
CONTEXT_LENGTH: Final = "CONTEXT_LENGTH"
OVERLOADED: Final = "OVERLOADED"
NO_WORKER: Final = "NO_WORKER"
NO_ROOM: Final = "NO_ROOM"
STALE_INCARNATION: Final = "STALE_INCARNATION"
UNKNOWN_TICKET: Final = "UNKNOWN_TICKET"
LEASE_EXPIRED: Final = "LEASE_EXPIRED"
MISMATCH: Final = "MISMATCH"
TRANSFER_FAILED: Final = "TRANSFER_FAILED"
WORKER_LOST: Final = "WORKER_LOST"
DRAINING: Final = "DRAINING"
DEADLINE: Final = "DEADLINE"
CANCELLED: Final = "CANCELLED"
INTERNAL: Final = "INTERNAL"
UNAUTHENTICATED: Final = "UNAUTHENTICATED"
FORBIDDEN: Final = "FORBIDDEN"
RATE_LIMITED: Final = "RATE_LIMITED"

UNREACHABLE: Final = "UNREACHABLE"
"""No connection to the router could be made, or it broke."""
DIVERGED: Final = "DIVERGED"
"""The stream broke, and the answer to the same request does not begin with what was delivered."""
MALFORMED: Final = "MALFORMED"
"""The stream had a gap, or ended without a finish or an error."""
