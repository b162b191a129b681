import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

import { clone, create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { Client as Channel, Metadata, type ServiceError } from "@grpc/grpc-js";

import { Address, channelArguments, type Tls } from "./channel.js";
import { TandemError } from "./error.js";
import { Generation } from "./generation.js";
import {
  type GenerateRequest,
  GenerateRequestSchema,
  GenerateResponseSchema,
  Inference,
  ListModelsRequestSchema,
  ListModelsResponseSchema,
  type ListModelsResponse,
  type Model,
} from "./generated/tandem/v1/inference_pb.js";
import { SamplingSchema } from "./generated/tandem/v1/sampling_pb.js";
import { Calls, type Retry } from "./retry.js";

/** How a client asks. */
export interface ClientOptions {
  /** An API key or a token, or what gives a fresh one for each call; sent as `authorization: Bearer`. */
  credential?: string | (() => string | Promise<string>) | undefined;
  tls?: Tls;
  retry?: Retry;
  /** Lets the credential leave the machine in plain text, on a network that is trusted. */
  plaintextCredential?: boolean;
}

/** How one call is made. */
export interface CallOptions {
  /** Milliseconds for all of it, calls asked again included. */
  timeoutMs?: number | undefined;
  /** Ends the call early, like `Generation.cancel`. */
  signal?: AbortSignal;
}

/** Asks routers; holds connections until it is closed. */
export class Client {
  readonly #channel: Channel;
  readonly #options: ClientOptions;

  constructor(url: string, options: ClientOptions = {}) {
    const address = new Address(url);
    if (options.credential !== undefined && !(address.tls || address.loopback || options.plaintextCredential)) {
      throw new TypeError("credential needs an https url, or plaintextCredential on a network that is trusted");
    }
    this.#channel = new Channel(address.target, ...channelArguments(address, options.tls));
    this.#options = options;
  }

  /** Starts one generation; iterate over what comes. */
  generate(request: MessageInitShape<typeof GenerateRequestSchema>, options: CallOptions = {}): Generation {
    const whole = determined(create(GenerateRequestSchema, request));
    const calls = new Calls(this.#options.retry ?? {}, options.timeoutMs);
    const ask = async () =>
      this.#channel.makeServerStreamRequest(
        path(Inference.method.generate.name),
        (message: GenerateRequest) => Buffer.from(toBinary(GenerateRequestSchema, message)),
        (bytes) => fromBinary(GenerateResponseSchema, bytes),
        whole,
        await this.#metadata(),
        { deadline: calls.deadline },
      );
    return new Generation(ask, whole.requestId, calls, options.signal);
  }

  /** The models that can be asked for. */
  async listModels(options: CallOptions = {}): Promise<Model[]> {
    const calls = new Calls(this.#options.retry ?? {}, options.timeoutMs);
    for (;;) {
      try {
        return (await this.#listModels(calls.deadline, options.signal)).models;
      } catch (error) {
        const delay = error instanceof TandemError ? calls.after(error) : undefined;
        if (delay === undefined) throw error;
        await sleep(delay, undefined, options.signal ? { signal: options.signal } : {});
      }
    }
  }

  /** Ends all connections. */
  close(): void {
    this.#channel.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  async #listModels(deadline: number, signal: AbortSignal | undefined): Promise<ListModelsResponse> {
    const metadata = await this.#metadata();
    return new Promise((resolve, reject) => {
      const answered = (error: ServiceError | null, response?: ListModelsResponse) => {
        signal?.removeEventListener("abort", abort);
        if (error) reject(TandemError.fromCall(error));
        else resolve(response!);
      };
      const call = this.#channel.makeUnaryRequest(
        path(Inference.method.listModels.name),
        () => Buffer.from(toBinary(ListModelsRequestSchema, create(ListModelsRequestSchema))),
        (bytes) => fromBinary(ListModelsResponseSchema, bytes),
        null,
        metadata,
        { deadline },
        answered,
      );
      const abort = () => call.cancel();
      signal?.addEventListener("abort", abort);
      if (signal?.aborted) abort();
    });
  }

  async #metadata(): Promise<Metadata> {
    const metadata = new Metadata();
    const { credential } = this.#options;
    const token = typeof credential === "function" ? await credential() : credential;
    if (token !== undefined) metadata.set("authorization", `Bearer ${token}`);
    return metadata;
  }
}

function path(method: string): string {
  return `/${Inference.typeName}/${method}`;
}

/** A copy with a request id and a seed: asked again, it is the same request, and draws the same tokens. */
function determined(request: GenerateRequest): GenerateRequest {
  const whole = clone(GenerateRequestSchema, request);
  whole.requestId ||= randomBytes(16).toString("hex");
  whole.sampling ??= create(SamplingSchema);
  whole.sampling.seed ??= randomBytes(8).readBigUInt64LE();
  return whole;
}
