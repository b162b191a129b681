"""A router that answers as a case says: what a real one does seldom, or never."""

import concurrent.futures
import pathlib

import grpc
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2, status_pb2

from tandem.v1.inference_pb2 import (
    FinishReason,
    GenerateRequest,
    GenerateResponse,
    ListModelsRequest,
    ListModelsResponse,
    Model,
)


class Played:
    """Answers the first call with the first of `calls`, and so on; remembers what it was asked."""

    def __init__(self, calls: list[list[dict]], tls: pathlib.Path | None):
        self.left = list(calls)
        self.requests: list[bytes] = []
        self.authorization: list[str] = []
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
        self.server.add_generic_rpc_handlers([
            grpc.method_handlers_generic_handler("tandem.v1.Inference", {
                "Generate": grpc.unary_stream_rpc_method_handler(
                    self.generate, GenerateRequest.FromString, GenerateResponse.SerializeToString
                ),
                "ListModels": grpc.unary_unary_rpc_method_handler(
                    self.list_models, ListModelsRequest.FromString, ListModelsResponse.SerializeToString
                ),
            })
        ])
        if tls is None:
            port = self.server.add_insecure_port("127.0.0.1:0")
        else:
            pair = (tls / "tls.key").read_bytes(), (tls / "tls.crt").read_bytes()
            port = self.server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"
        self.server.start()

    def generate(self, request: GenerateRequest, context: grpc.ServicerContext):
        for sequence, step in enumerate(self.next(request, context)):
            if "error" in step:
                fail(context, step["error"])
            response = GenerateResponse(
                request_id=request.request_id,
                sequence=step.get("sequence", sequence),
                token_ids=step["ids"],
                text=step["text"],
            )
            if "finish" in step:
                response.finish.reason = FinishReason.Value(f"FINISH_REASON_{step['finish']}")
            yield response

    def list_models(self, request: ListModelsRequest, context: grpc.ServicerContext):
        [step] = self.next(request, context)
        if "error" in step:
            fail(context, step["error"])
        return ListModelsResponse(models=[Model(name=name) for name in step["models"]])

    def next(self, request, context: grpc.ServicerContext) -> list[dict]:
        self.requests.append(request.SerializeToString(deterministic=True))
        self.authorization.append(dict(context.invocation_metadata()).get("authorization", ""))
        return self.left.pop(0)

    def close(self):
        self.server.stop(0)


def fail(context: grpc.ServicerContext, error: dict):
    """Ends the call as a router does; without a `reason`, as a proxy does."""
    code = grpc.StatusCode[error["code"]]
    if "reason" in error:
        status = status_pb2.Status(code=code.value[0], message="played")
        field = {"field": error["field"]} if "field" in error else {}
        info = error_details_pb2.ErrorInfo(domain="tandem", reason=error["reason"], metadata=field)
        status.details.add().Pack(info)
        if "retry_after" in error:
            delay = duration_pb2.Duration()
            delay.FromMilliseconds(round(error["retry_after"] * 1000))
            status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
        context.set_trailing_metadata([("grpc-status-details-bin", status.SerializeToString())])
    context.abort(code, "played")
