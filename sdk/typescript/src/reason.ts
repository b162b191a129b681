/**
 * Why a call failed: the router's reasons, as docs/errors.md explains them, and those that a client finds itself.
 *
 * They are plain strings, so that a reason of a newer router arrives as it is.
 */
export const Reason = {
  INVALID_FIELD: "INVALID_FIELD",
  UNKNOWN_MODEL: "UNKNOWN_MODEL",
  CONTEXT_LENGTH: "CONTEXT_LENGTH",
  OVERLOADED: "OVERLOADED",
  NO_WORKER: "NO_WORKER",
  NO_ROOM: "NO_ROOM",
  STALE_INCARNATION: "STALE_INCARNATION",
  UNKNOWN_TICKET: "UNKNOWN_TICKET",
  LEASE_EXPIRED: "LEASE_EXPIRED",
  MISMATCH: "MISMATCH",
  TRANSFER_FAILED: "TRANSFER_FAILED",
  WORKER_LOST: "WORKER_LOST",
  DRAINING: "DRAINING",
  DEADLINE: "DEADLINE",
  CANCELLED: "CANCELLED",
  INTERNAL: "INTERNAL",
  UNAUTHENTICATED: "UNAUTHENTICATED",
  FORBIDDEN: "FORBIDDEN",
  RATE_LIMITED: "RATE_LIMITED",

  /** No connection to the router could be made, or it broke. */
  UNREACHABLE: "UNREACHABLE",
  /** The stream broke, and the answer to the same request does not begin with what was delivered. */
  DIVERGED: "DIVERGED",
  /** The stream had a gap, or ended without a finish or an error. */
  MALFORMED: "MALFORMED",
} as const;

/** One of `Reason`, or a newer router's. */
export type Reason = (typeof Reason)[keyof typeof Reason] | (string & {});
