import type { Finish, GenerateResponse, Timing, Usage } from "./generated/tandem/v1/inference_pb.js";
import type { Logprobs } from "./generated/tandem/v1/sampling_pb.js";

/** What a generation delivered, put together. */
export class Completion {
  requestId = "";
  readonly tokenIds: number[] = [];
  text = "";
  /** One entry a token when asked for. */
  readonly logprobs: Logprobs[] = [];
  finish: Finish | undefined;
  usage: Usage | undefined;
  timing: Timing | undefined;

  /** Appends a response of the stream. */
  add(response: GenerateResponse): void {
    this.requestId = response.requestId;
    this.tokenIds.push(...response.tokenIds);
    this.text += response.text;
    this.logprobs.push(...response.logprobs);
    if (response.finish) {
      this.finish = response.finish;
      this.usage = response.usage;
      this.timing = response.timing;
    }
  }
}
