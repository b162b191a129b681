/**
 * Client of Tandem's inference service: streaming, typed errors, safe retries, exact resumption.
 *
 * Requests and responses are the contract's own messages.
 */
export { MESSAGE_LIMIT, type Tls } from "./channel.js";
export { type CallOptions, Client, type ClientOptions } from "./client.js";
export { Completion } from "./completion.js";
export { TandemError } from "./error.js";
export { Generation } from "./generation.js";
export * from "./generated/tandem/v1/inference_pb.js";
export * from "./generated/tandem/v1/sampling_pb.js";
export { Reason } from "./reason.js";
export type { Retry } from "./retry.js";
