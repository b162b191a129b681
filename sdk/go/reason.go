package tandem

// Why a call failed: the router's reasons, as docs/errors.md explains them, and those that a client finds itself. They are plain
// strings, so that a reason of a newer router arrives as it is.
const (
	InvalidField     = "INVALID_FIELD"
	UnknownModel     = "UNKNOWN_MODEL"
	ContextLength    = "CONTEXT_LENGTH"
	Overloaded       = "OVERLOADED"
	NoWorker         = "NO_WORKER"
	NoRoom           = "NO_ROOM"
	StaleIncarnation = "STALE_INCARNATION"
	UnknownTicket    = "UNKNOWN_TICKET"
	LeaseExpired     = "LEASE_EXPIRED"
	Mismatch         = "MISMATCH"
	TransferFailed   = "TRANSFER_FAILED"
	WorkerLost       = "WORKER_LOST"
	Draining         = "DRAINING"
	Deadline         = "DEADLINE"
	Cancelled        = "CANCELLED"
	Internal         = "INTERNAL"
	Unauthenticated  = "UNAUTHENTICATED"
	Forbidden        = "FORBIDDEN"
	RateLimited      = "RATE_LIMITED"

	// Unreachable: no connection to the router could be made, or it broke.
	Unreachable = "UNREACHABLE"
	// Diverged: the stream broke, and the answer to the same request does not begin with what was delivered.
	Diverged = "DIVERGED"
	// Malformed: the stream had a gap, or ended without a finish or an error.
	Malformed = "MALFORMED"
)
