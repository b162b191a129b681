"""Streams one answer: python generate.py PROMPT. TANDEM_URL names the router."""

import os
import sys

from tandem import Client, GenerateRequest, Sampling, TandemError

prompt = " ".join(sys.argv[1:]) or "In the beginning"
with Client(os.environ.get("TANDEM_URL", "http://127.0.0.1:50051"), credential=os.environ.get("TANDEM_API_KEY")) as client:
    try:
        model = client.list_models(timeout=5)[0].name
        request = GenerateRequest(model=model, text=prompt, sampling=Sampling(max_tokens=64, temperature=0.8))
        with client.generate(request, timeout=60) as generation:
            for response in generation:
                print(response.text, end="", flush=True)
        print(f"\n{response.usage.completion_tokens} tokens, first after {response.timing.first_token:.3f} s", file=sys.stderr)
    except TandemError as error:
        advice = "" if error.retry_after is None else f"; ask again after {error.retry_after:.1f} s"
        sys.exit(f"{error.reason} {error.field}: {error.message}{advice}")
