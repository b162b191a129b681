"""Answers the conformance suite's lines with this SDK: conformance.py [aio]. See ../conformance/README.md."""

from __future__ import annotations

import asyncio
import base64
import json
import pathlib
import sys
import threading
import time

import tandem
from tandem import GenerateRequest, Retry, TandemError, Tls


def options(case: dict) -> dict:
    made: dict = {"credential": case.get("credential"), "retry": Retry(**case.get("retry", {}))}
    if "ca" in case:
        made["tls"] = Tls(ca=pathlib.Path(case["ca"]).read_bytes(), server_name=case.get("server_name"))
    return made


def request(case: dict) -> GenerateRequest:
    return GenerateRequest.FromString(base64.b64decode(case.get("request", "")))


def encoded(message) -> str:
    return base64.b64encode(message.SerializeToString()).decode()


def whole(completion: tandem.Completion) -> dict:
    return {
        "token_ids": completion.token_ids,
        "text": completion.text,
        "logprobs": len(completion.logprobs),
        "finish": encoded(completion.finish),
    }


def failure(error: TandemError) -> dict:
    return {
        "reason": error.reason,
        "code": error.code.value[0],
        "field": error.field,
        "retry_after": error.retry_after,
        "message": error.message,
        "request_id": error.request_id,
        "delivered": error.delivered,
    }


def run(case: dict, answer: dict) -> None:
    with tandem.Client(case["url"], **options(case)) as client:
        if case["call"] == "list_models":
            answer["models"] = [encoded(model) for model in client.list_models(timeout=case.get("timeout"))]
            return
        with client.generate(request(case), timeout=case.get("timeout")) as generation:
            if case["call"] == "collect":
                answer["completion"] = whole(generation.collect())
                return
            if "cancel_after_seconds" in case:
                threading.Timer(case["cancel_after_seconds"], generation.cancel).start()
            for response in generation:
                answer["responses"].append(encoded(response))
                if len(answer["responses"]) == case.get("cancel_after"):
                    generation.cancel()


async def run_aio(case: dict, answer: dict) -> None:
    async with tandem.aio.Client(case["url"], **options(case)) as client:
        if case["call"] == "list_models":
            answer["models"] = [encoded(model) for model in await client.list_models(timeout=case.get("timeout"))]
            return
        async with client.generate(request(case), timeout=case.get("timeout")) as generation:
            if case["call"] == "collect":
                answer["completion"] = whole(await generation.collect())
                return
            if "cancel_after_seconds" in case:
                asyncio.get_running_loop().call_later(case["cancel_after_seconds"], generation.cancel)
            async for response in generation:
                answer["responses"].append(encoded(response))
                if len(answer["responses"]) == case.get("cancel_after"):
                    generation.cancel()


def main() -> None:
    loop = asyncio.Runner() if "aio" in sys.argv[1:] else None
    for line in sys.stdin:
        case, answer, begin = json.loads(line), {"responses": []}, time.monotonic()
        try:
            if case["call"] == "reasons":
                answer["reasons"] = sorted(value for name, value in vars(tandem.reason).items() if name.isupper())
            elif loop:
                loop.run(run_aio(case, answer))
            else:
                run(case, answer)
        except TandemError as error:
            answer["error"] = failure(error)
        except ValueError as error:
            answer["refused"] = str(error)
        answer["seconds"] = time.monotonic() - begin
        print(json.dumps(answer), flush=True)


main()
