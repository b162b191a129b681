"""The client for threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from .channel import Address, Tls, channel_arguments
from .completion import Completion
from .error import TandemError
from .progress import Progress
from .request import GENERATE, LIST_MODELS, determined
from .retry import Calls, Retry
from .v1.inference_pb2 import GenerateRequest, GenerateResponse, ListModelsRequest, ListModelsResponse, Model


class Client:
    """Asks routers. Safe to share between threads; holds connections until it is closed."""

    def __init__(
        self,
        url: str,
        *,
        credential: str | Callable[[], str] | None = None,
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
            self._channel = grpc.insecure_channel(address.target, options)
        else:
            self._channel = grpc.secure_channel(address.target, credentials, options)
        self._credential = credential
        self._retry = retry
        self._generate = self._channel.unary_stream(
            GENERATE, GenerateRequest.SerializeToString, GenerateResponse.FromString
        )
        self._list_models = self._channel.unary_unary(
            LIST_MODELS, ListModelsRequest.SerializeToString, ListModelsResponse.FromString
        )

    def generate(self, request: GenerateRequest, *, timeout: float | None = None) -> Generation:
        """Starts one generation; iterate over what comes. `timeout`: seconds for all of it, calls asked again included."""
        request, calls = determined(request), Calls(self._retry, timeout)

        def ask() -> Any:
            return self._generate(request, timeout=calls.remaining(), metadata=self._metadata())

        return Generation(ask, Progress(request.request_id, calls))

    def list_models(self, *, timeout: float | None = None) -> list[Model]:
        """The models that can be asked for."""
        calls = Calls(self._retry, timeout)
        while True:
            try:
                answer = self._list_models(
                    ListModelsRequest(), timeout=calls.remaining(), metadata=self._metadata()
                )
                return list(answer.models)
            except grpc.RpcError as call:
                error = TandemError.from_call(call)
                delay = calls.after(error)
                if delay is None:
                    raise error from call
            time.sleep(delay)

    def close(self) -> None:
        """Ends all calls and connections."""
        self._channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        token = self._credential() if callable(self._credential) else self._credential
        return () if token is None else (("authorization", f"Bearer {token}"),)


class Generation(Iterator[GenerateResponse]):
    """One generation: an iterator of responses, numbered without a gap, the last with a `finish`.

    Leaving a `with` block, or `cancel`, ends it early and frees everything it holds in the cluster.
    """

    def __init__(self, ask: Callable[[], Any], progress: Progress):
        self._ask = ask
        self._progress = progress
        self._cancelled = threading.Event()
        self._call = ask()

    @property
    def request_id(self) -> str:
        """Names the request in the router's logs."""
        return self._progress.request_id

    def __next__(self) -> GenerateResponse:
        while not self._progress.over:
            try:
                response = self._progress.accept(next(self._call, None))
            except (grpc.RpcError, TandemError) as cause:
                if self._cancelled.is_set():
                    raise self._progress.cancelled() from cause
                self._call.cancel()
                if self._cancelled.wait(self._progress.recover(cause)):
                    raise self._progress.cancelled() from cause
                self._progress.begin()
                self._call = self._ask()
                if self._cancelled.is_set():
                    self._call.cancel()
                continue
            if response is not None:
                return response
        raise StopIteration

    def collect(self) -> Completion:
        """Waits for the whole answer."""
        whole = Completion()
        for response in self:
            whole.add(response)
        return whole

    def cancel(self) -> None:
        """Ends the generation, from any thread; whoever iterates gets a `TandemError` with reason CANCELLED."""
        self._cancelled.set()
        self._call.cancel()

    def __enter__(self) -> Generation:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()
