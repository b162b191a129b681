"""The client for asyncio: the same names as in `tandem`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from .channel import Address, Tls, channel_arguments
from .completion import Completion
from .error import TandemError
from .progress import Progress
from .request import GENERATE, LIST_MODELS, determined
from .retry import Calls, Retry
from .v1.inference_pb2 import GenerateRequest, GenerateResponse, ListModelsRequest, ListModelsResponse, Model


class Client:
    """Asks routers, from one event loop; holds connections until it is closed."""

    def __init__(
        self,
        url: str,
        *,
        credential: str | Callable[[], str | Awaitable[str]] | None = None,
        tls: Tls | None = None,
        retry: Retry = Retry(),
        plaintext_credential: bool = False,
    ):
        """`credential`: an API key or a token, or what gives a fresh one for each call; sent as `authorization: Bearer`."""
        address = Address.parse(url)
        if credential is not None:
            address.check_credential(plaintext_credential)
        credentials, options = channel_arguments(address, tls)
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(address.target, options)
        else:
            self._channel = grpc.aio.secure_channel(address.target, credentials, options)
        self._credential = credential
        self._retry = retry
        self._generate = self._channel.unary_stream(
            GENERATE, GenerateRequest.SerializeToString, GenerateResponse.FromString
        )
        self._list_models = self._channel.unary_unary(
            LIST_MODELS, ListModelsRequest.SerializeToString, ListModelsResponse.FromString
        )

    def generate(self, request: GenerateRequest, *, timeout: float | None = None) -> Generation:
        """One generation; iterate over what comes. `timeout`: seconds for all of it, calls asked again included."""
        request, calls = determined(request), Calls(self._retry, timeout)

        async def ask() -> Any:
            metadata = await self._metadata()
            return self._generate(request, timeout=calls.remaining(), metadata=metadata)

        return Generation(ask, Progress(request.request_id, calls))

    async def list_models(self, *, timeout: float | None = None) -> list[Model]:
        """The models that can be asked for."""
        calls = Calls(self._retry, timeout)
        while True:
            metadata = await self._metadata()
            try:
                answer = await self._list_models(
                    ListModelsRequest(), timeout=calls.remaining(), metadata=metadata
                )
                return list(answer.models)
            except grpc.RpcError as call:
                error = TandemError.from_call(call)
                delay = calls.after(error)
                if delay is None:
                    raise error from call
            await asyncio.sleep(delay)

    async def close(self) -> None:
        """Ends all calls and connections."""
        await self._channel.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _metadata(self) -> tuple[tuple[str, str], ...]:
        token = self._credential() if callable(self._credential) else self._credential
        if inspect.isawaitable(token):
            token = await token
        return () if token is None else (("authorization", f"Bearer {token}"),)


class Generation(AsyncIterator[GenerateResponse]):
    """One generation: an iterator of responses, numbered without a gap, the last with a `finish`.

    Leaving an `async with` block, `cancel`, or the end of the task that iterates ends it early and frees everything it holds in the
    cluster.
    """

    def __init__(self, ask: Callable[[], Awaitable[Any]], progress: Progress):
        self._ask = ask
        self._progress = progress
        self._cancelled = asyncio.Event()
        self._call: Any = None

    @property
    def request_id(self) -> str:
        """Names the request in the router's logs."""
        return self._progress.request_id

    async def __anext__(self) -> GenerateResponse:
        while not self._progress.over:
            try:
                response = self._progress.accept(await self._read())
            except (grpc.RpcError, TandemError) as cause:
                await self._recover(cause)
                continue
            if response is not None:
                return response
        raise StopAsyncIteration

    async def collect(self) -> Completion:
        """Waits for the whole answer."""
        whole = Completion()
        async for response in self:
            whole.add(response)
        return whole

    def cancel(self) -> None:
        """Ends the generation; whoever iterates gets a `TandemError` with reason CANCELLED."""
        self._cancelled.set()
        if self._call is not None:
            self._call.cancel()

    async def __aenter__(self) -> Generation:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    async def _read(self) -> GenerateResponse | None:
        if self._cancelled.is_set():
            raise self._progress.cancelled()
        if self._call is None:
            self._call = await self._ask()
        try:
            response = await self._call.read()
        except asyncio.CancelledError:
            # A call that is cancelled raises the same as a task that is.
            if self._cancelled.is_set():
                raise self._progress.cancelled() from None
            raise
        return None if response is grpc.aio.EOF else response

    async def _recover(self, cause: grpc.RpcError | TandemError) -> None:
        if self._cancelled.is_set():
            raise self._progress.cancelled() from cause
        if self._call is not None:
            self._call.cancel()
        delay = self._progress.recover(cause)
        try:
            await asyncio.wait_for(self._cancelled.wait(), delay)
        except (asyncio.TimeoutError, TimeoutError):
            self._progress.begin()
            self._call = None
