import { setTimeout as sleep } from "node:timers/promises";

import { type ClientReadableStream, type ServiceError, status } from "@grpc/grpc-js";

import { Completion } from "./completion.js";
import { TandemError } from "./error.js";
import type { GenerateResponse } from "./generated/tandem/v1/inference_pb.js";
import { Reason } from "./reason.js";
import type { Calls } from "./retry.js";
import { Splice } from "./splice.js";

type Call = ClientReadableStream<GenerateResponse>;

/**
 * One generation: iterates, once, over responses that are numbered without a gap, the last with a `finish`.
 *
 * Leaving the loop, `cancel`, or the signal ends it early and frees everything it holds in the cluster.
 */
export class Generation implements AsyncIterable<GenerateResponse> {
  readonly #ask: () => Promise<Call>;
  readonly #calls: Calls;
  readonly #splice = new Splice();
  readonly #cancelled = new AbortController();
  #call: Promise<Call>;

  /** `requestId` names the request in the router's logs. */
  constructor(ask: () => Promise<Call>, readonly requestId: string, calls: Calls, signal?: AbortSignal) {
    this.#ask = ask;
    this.#calls = calls;
    this.#call = this.#start();
    if (signal?.aborted) this.cancel();
    signal?.addEventListener("abort", () => this.cancel(), { once: true, signal: this.#cancelled.signal });
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<GenerateResponse, void, undefined> {
    try {
      for (;;) {
        try {
          for await (const response of await this.#call) {
            const fresh = this.#splice.accept(response as GenerateResponse);
            if (fresh) yield fresh;
            if (fresh?.finish) return;
          }
          throw new TandemError({ reason: Reason.MALFORMED, message: "the stream ended without a finish" });
        } catch (cause) {
          await this.#recover(cause);
          this.#splice.begin();
          this.#call = this.#start();
        }
      }
    } finally {
      this.cancel();
    }
  }

  /** Waits for the whole answer. */
  async collect(): Promise<Completion> {
    const whole = new Completion();
    for await (const response of this) whole.add(response);
    return whole;
  }

  /** Ends the generation; whoever iterates gets a `TandemError` with reason CANCELLED. */
  cancel(): void {
    this.#cancelled.abort();
    this.#call.then((call) => call.cancel(), () => {});
  }

  #start(): Promise<Call> {
    const call = this.#ask();
    // Whoever iterates hears of every failure; until then none of them is unhandled.
    call.then((made) => made.on("error", () => {}), () => {});
    return call;
  }

  /** Waits until the request may be asked again; throws if the generation ends here. */
  async #recover(cause: unknown): Promise<void> {
    if (this.#cancelled.signal.aborted) throw this.#cancelledError();
    const error = cause instanceof TandemError ? cause : isStatus(cause) ? TandemError.fromCall(cause) : undefined;
    if (!error) throw cause;
    this.#call.then((call) => call.cancel(), () => {});
    const delay = this.#calls.after(this.#named(error));
    if (delay === undefined) throw error;
    await sleep(delay, undefined, { signal: this.#cancelled.signal }).catch(() => {
      throw this.#cancelledError();
    });
  }

  #cancelledError(): TandemError {
    const failure = { reason: Reason.CANCELLED, message: "cancelled by the client", code: status.CANCELLED };
    return this.#named(new TandemError(failure));
  }

  #named(error: TandemError): TandemError {
    error.requestId = this.requestId;
    error.delivered = this.#splice.ids.length;
    return error;
  }
}

function isStatus(cause: unknown): cause is ServiceError {
  return cause instanceof Error && "code" in cause && typeof cause.code === "number" && "metadata" in cause;
}
