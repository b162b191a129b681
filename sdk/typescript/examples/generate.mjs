// Streams one answer: node examples/generate.mjs PROMPT. TANDEM_URL names the router.
import { Client, TandemError } from "tandem-sdk";

const text = process.argv.slice(2).join(" ") || "In the beginning";
const client = new Client(process.env["TANDEM_URL"] ?? "http://127.0.0.1:50051", {
  credential: process.env["TANDEM_API_KEY"],
});
try {
  const [model] = await client.listModels({ timeoutMs: 5000 });
  const generation = client.generate(
    {
      model: model?.name ?? "",
      prompt: { case: "text", value: text },
      sampling: { maxTokens: 64, temperature: 0.8 },
    },
    { timeoutMs: 60_000 },
  );
  for await (const response of generation) {
    process.stdout.write(response.text);
    if (response.usage && response.timing) {
      const first = response.timing.firstToken.toFixed(3);
      console.error(`\n${response.usage.completionTokens} tokens, first after ${first} s`);
    }
  }
} catch (error) {
  if (!(error instanceof TandemError)) throw error;
  const advice = error.retryAfterMs === undefined ? "" : `; ask again after ${error.retryAfterMs} ms`;
  console.error(`${error.reason} ${error.field}: ${error.message}${advice}`);
  process.exitCode = 1;
} finally {
  client.close();
}
