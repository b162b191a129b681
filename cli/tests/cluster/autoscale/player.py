"""Plays arrivals through the router, by the Python SDK, and notes what came of each."""

import asyncio
import dataclasses
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "sdk" / "python" / "src"))
import tandem  # noqa: E402

from .stretches import Arrival  # noqa: E402


@dataclasses.dataclass
class Answer:
    at: float
    ttft: float | None = None
    fault: str | None = None


async def play(address: str, model: str, arrivals: list[Arrival], clock) -> list[Answer]:
    """Each at its time, whatever is still running; until the last has ended."""
    async with tandem.aio.Client(address) as client:
        return await asyncio.gather(*(one(client, model, number, arrival, clock) for number, arrival in enumerate(arrivals)))


async def one(client, model: str, number: int, arrival: Arrival, clock) -> Answer:
    rng = random.Random(number)
    ids = [rng.randrange(6, 2000) for _ in range(arrival.prompt)]
    sampling = tandem.Sampling(max_tokens=arrival.output, temperature=0, ignore_eos=True)
    request = tandem.GenerateRequest(model=model, tokens=tandem.Tokens(ids=ids), sampling=sampling)
    await asyncio.sleep(max(0.0, arrival.at - clock()))
    answer, tokens = Answer(clock()), 0
    try:
        async for response in client.generate(request, timeout=300):
            if answer.ttft is None:
                answer.ttft = clock() - answer.at
            tokens += len(response.token_ids)
    except tandem.TandemError as fault:
        answer.fault = str(fault)
    else:
        if tokens != arrival.output:
            answer.fault = f"{tokens} tokens instead of {arrival.output}"
    return answer
