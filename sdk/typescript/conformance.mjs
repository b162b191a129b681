// Answers the conformance suite's lines with this SDK. See ../conformance/README.md.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { Client, FinishSchema, GenerateRequestSchema, GenerateResponseSchema, ModelSchema, Reason, TandemError } from "tandem-sdk";

/** @param {any} line */
function options(line) {
  return {
    credential: line.credential,
    retry: line.retry ?? {},
    ...(line.ca && { tls: { ca: readFileSync(line.ca), serverName: line.server_name } }),
  };
}

/** @param {Uint8Array} bytes */
function encoded(bytes) {
  return Buffer.from(bytes).toString("base64");
}

/** @param {Client} client @param {any} line @param {any} answer */
async function run(client, line, answer) {
  const call = { timeoutMs: line.timeout && line.timeout * 1000 };
  if (line.call === "list_models") {
    answer.models = (await client.listModels(call)).map((model) => encoded(toBinary(ModelSchema, model)));
    return;
  }
  const generation = client.generate(fromBinary(GenerateRequestSchema, Buffer.from(line.request, "base64")), call);
  if (line.call === "collect") {
    const whole = await generation.collect();
    const finish = whole.finish && encoded(toBinary(FinishSchema, whole.finish));
    answer.completion = { token_ids: whole.tokenIds, text: whole.text, logprobs: whole.logprobs.length, finish };
    return;
  }
  if (line.cancel_after_seconds) setTimeout(() => generation.cancel(), line.cancel_after_seconds * 1000);
  for await (const response of generation) {
    answer.responses.push(encoded(toBinary(GenerateResponseSchema, response)));
    if (answer.responses.length === line.cancel_after) generation.cancel();
  }
}

for await (const text of createInterface({ input: process.stdin })) {
  /** @type {any} */
  const answer = { responses: [] };
  const begin = performance.now();
  const line = JSON.parse(text);
  try {
    if (line.call === "reasons") answer.reasons = Object.values(Reason).sort();
    else {
      const client = new Client(line.url, options(line));
      await run(client, line, answer).finally(() => client.close());
    }
  } catch (error) {
    if (error instanceof TypeError) answer.refused = error.message;
    else if (!(error instanceof TandemError)) throw error;
    else {
      const { reason, code, field, message, delivered } = error;
      const retry_after = error.retryAfterMs === undefined ? null : error.retryAfterMs / 1000;
      answer.error = { reason, code, field, message, delivered, retry_after, request_id: error.requestId };
    }
  }
  answer.seconds = (performance.now() - begin) / 1000;
  console.log(JSON.stringify(answer));
}
