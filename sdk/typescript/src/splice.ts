import { clone } from "@bufbuild/protobuf";

import { TandemError } from "./error.js";
import { type GenerateResponse, GenerateResponseSchema } from "./generated/tandem/v1/inference_pb.js";
import { Reason } from "./reason.js";

/**
 * Makes one stream, which delivers every token once, of several answers to one request.
 *
 * It knows what was delivered. A further answer has to begin with exactly those tokens and that text, which are left out; then all
 * that is delivered is what that answer says.
 */
export class Splice {
  readonly ids: number[] = [];
  #text = "";
  #sequence = 0n;
  #expected = 0n;
  #idsSeen = 0;
  #textSeen = 0;

  /** A new answer begins. */
  begin(): void {
    this.#expected = 0n;
    this.#idsSeen = 0;
    this.#textSeen = 0;
  }

  /** What is new in the answer's next response, if anything is. */
  accept(response: GenerateResponse): GenerateResponse | undefined {
    if (response.sequence !== this.#expected) {
      const message = `response ${this.#expected} of the stream is missing; ${response.sequence} came`;
      throw new TandemError({ reason: Reason.MALFORMED, message });
    }
    this.#expected += 1n;
    const oldIds = this.ids.slice(this.#idsSeen, this.#idsSeen + response.tokenIds.length);
    const oldText = this.#text.slice(this.#textSeen, this.#textSeen + response.text.length);
    this.#idsSeen += response.tokenIds.length;
    this.#textSeen += response.text.length;
    const same = oldIds.every((id, at) => response.tokenIds[at] === id) && response.text.startsWith(oldText);
    const whole = this.#idsSeen >= this.ids.length && this.#textSeen >= this.#text.length;
    if (!same || (response.finish && !whole)) {
      const message = "the answer to the same request does not begin with what was delivered";
      throw new TandemError({ reason: Reason.DIVERGED, message });
    }
    const fresh = clone(GenerateResponseSchema, response);
    fresh.tokenIds.splice(0, oldIds.length);
    fresh.logprobs.splice(0, oldIds.length);
    fresh.text = response.text.slice(oldText.length);
    if (fresh.tokenIds.length === 0 && fresh.text === "" && !fresh.finish) return undefined;
    fresh.sequence = this.#sequence;
    this.#sequence += 1n;
    this.ids.push(...fresh.tokenIds);
    this.#text += fresh.text;
    return fresh;
  }
}
