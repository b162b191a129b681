"""What a client adds to a request before it is asked."""

from __future__ import annotations

import secrets

from .v1 import inference_pb2
from .v1.inference_pb2 import GenerateRequest

_SERVICE = inference_pb2.DESCRIPTOR.services_by_name["Inference"]
GENERATE = f"/{_SERVICE.full_name}/Generate"
LIST_MODELS = f"/{_SERVICE.full_name}/ListModels"


def determined(request: GenerateRequest) -> GenerateRequest:
    """A copy with a request id and a seed: asked again, it is the same request, and draws the same tokens."""
    whole = GenerateRequest()
    whole.CopyFrom(request)
    if not whole.request_id:
        whole.request_id = secrets.token_hex(16)
    if not whole.sampling.HasField("seed"):
        whole.sampling.seed = secrets.randbits(64)
    return whole
