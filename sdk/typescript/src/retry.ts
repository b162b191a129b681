import type { TandemError } from "./error.js";

/** Bounds of asking again. What may be asked again at all is no choice: see `TandemError.again`. */
export interface Retry {
  /** Calls a request makes at most; 1 never asks again. Default: 5. */
  calls?: number;
  /**
   * Milliseconds before the second call; doubles with each further one. An error's `retryAfterMs` is waited for at least.
   * Default: 100.
   */
  initialBackoffMs?: number;
  /** Longest backoff. Default: 5000. */
  maxBackoffMs?: number;
  /** Ask again also after tokens were delivered, and deliver the rest of an answer that begins with them. Default: true. */
  resume?: boolean;
}

const DEFAULTS = { calls: 5, initialBackoffMs: 100, maxBackoffMs: 5000, resume: true };

/** The calls of one request, under one deadline. */
export class Calls {
  /** When all calls must be over, in milliseconds since the epoch; Infinity without a timeout. */
  readonly deadline: number;
  readonly #retry: Required<Retry>;
  #made = 1;

  constructor(retry: Retry, timeoutMs: number | undefined) {
    this.#retry = { ...DEFAULTS, ...retry };
    this.deadline = timeoutMs === undefined ? Infinity : Date.now() + timeoutMs;
  }

  /** Milliseconds to wait before the next call; undefined if this error is the end. */
  after(error: TandemError): number | undefined {
    const { calls, initialBackoffMs, maxBackoffMs, resume } = this.#retry;
    if (!error.again || this.#made >= calls || (error.delivered > 0 && !resume)) return undefined;
    const backoff = Math.min(maxBackoffMs, initialBackoffMs * 2 ** (this.#made - 1));
    // Clients that failed together don't come back together.
    const delay = Math.max(error.retryAfterMs ?? 0, backoff) * (1 + Math.random() * 0.5);
    if (this.deadline <= Date.now() + delay) return undefined;
    this.#made += 1;
    return delay;
  }
}
