import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { type ServiceError, status } from "@grpc/grpc-js";

import { ErrorInfoSchema, RetryInfoSchema, type ErrorInfo, type RetryInfo } from "./generated/google/rpc/error_details_pb.js";
import { StatusSchema } from "./generated/google/rpc/status_pb.js";
import { Reason } from "./reason.js";

const DOMAIN = "tandem";
const DETAILS = "grpc-status-details-bin";

/** What a status without a reason of ours says: it comes from a library or a proxy on the way, never from a router. */
const BY_CODE: Partial<Record<status, Reason>> = {
  [status.UNAVAILABLE]: Reason.UNREACHABLE,
  [status.UNKNOWN]: Reason.UNREACHABLE,
  [status.INTERNAL]: Reason.UNREACHABLE,
  [status.DEADLINE_EXCEEDED]: Reason.DEADLINE,
};

/** What is known of a failure. */
export interface Failure {
  reason: Reason;
  message: string;
  code?: status;
  field?: string;
  retryAfterMs?: number | undefined;
}

/** A call failed. The one error that calls end with. */
export class TandemError extends Error {
  override readonly name = "TandemError";
  readonly reason: Reason;
  readonly code: status;
  /** The request's field that is to blame, by its path, such as `sampling.top_p`; may be empty. */
  readonly field: string;
  /** Milliseconds after which asking again can help; undefined if it can't. */
  readonly retryAfterMs: number | undefined;
  /** Names the request in the router's logs. */
  requestId = "";
  /** Tokens that were delivered before. */
  delivered = 0;

  constructor(failure: Failure, options?: ErrorOptions) {
    super(failure.message, options);
    this.reason = failure.reason;
    this.code = failure.code ?? status.UNKNOWN;
    this.field = failure.field ?? "";
    this.retryAfterMs = failure.retryAfterMs;
  }

  /** Whether the same request may be asked again. */
  get again(): boolean {
    return this.retryAfterMs !== undefined || this.reason === Reason.UNREACHABLE;
  }

  /** Reads the status that a call ended with. */
  static fromCall(call: ServiceError): TandemError {
    const { info, retry } = details(call);
    const known = { message: call.details, code: call.code };
    if (!info) {
      return new TandemError({ ...known, reason: BY_CODE[call.code] ?? status[call.code] }, { cause: call });
    }
    const delay = retry?.retryDelay;
    const retryAfterMs = retry && Number(delay?.seconds ?? 0n) * 1000 + (delay?.nanos ?? 0) / 1e6;
    const field = info.metadata["field"] ?? "";
    return new TandemError({ ...known, reason: info.reason, field, retryAfterMs }, { cause: call });
  }
}

function details(call: ServiceError): { info?: ErrorInfo; retry?: RetryInfo } {
  const found: { info?: ErrorInfo; retry?: RetryInfo } = {};
  for (const value of call.metadata?.get(DETAILS) ?? []) {
    for (const detail of fromBinary(StatusSchema, value as Buffer).details) {
      const info = anyUnpack(detail, ErrorInfoSchema);
      const retry = anyUnpack(detail, RetryInfoSchema);
      if (info) found.info = info;
      if (retry) found.retry = retry;
    }
  }
  return found.info?.domain === DOMAIN ? found : {};
}
