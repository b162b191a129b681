"""Client of Tandem's inference service: streaming, typed errors, safe retries, exact resumption.

`Client` is for threads; `tandem.aio` has the one for asyncio. Requests and responses are the contract's own messages.
"""

from . import aio, reason
from .channel import Tls
from .client import Client, Generation
from .completion import Completion
from .error import TandemError
from .retry import Retry
from .v1.inference_pb2 import (
    Chat,
    ChatMessage,
    Finish,
    FinishReason,
    GenerateRequest,
    GenerateResponse,
    Model,
    Timing,
    Tokens,
    Usage,
)
from .v1.sampling_pb2 import Logprobs, Sampling, TokenLogprob

__all__ = [
    "Chat",
    "ChatMessage",
    "Client",
    "Completion",
    "Finish",
    "FinishReason",
    "GenerateRequest",
    "GenerateResponse",
    "Generation",
    "Logprobs",
    "Model",
    "Retry",
    "Sampling",
    "TandemError",
    "Timing",
    "Tls",
    "TokenLogprob",
    "Tokens",
    "Usage",
    "aio",
    "reason",
]
