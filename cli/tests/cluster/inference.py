"""A client of `tandem.v1.Inference` that knows the contract only through the server's reflection."""

import threading

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase


class Inference:
    def __init__(self, address: str, model: str):
        self.model = model
        self.channel = grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", 64 << 20)])
        self.database = ProtoReflectionDescriptorDatabase(self.channel)
        self.pool = descriptor_pool.DescriptorPool(self.database)
        # A pool that is filled from a database is not made for threads.
        self.lock = threading.Lock()
        self.methods = {}

    def services(self) -> list[str]:
        return sorted(self.database.get_services())

    def method(self, service: str, name: str):
        with self.lock:
            if (service, name) not in self.methods:
                self.methods[service, name] = self.find(service, name)
            return self.methods[service, name]

    def find(self, service: str, name: str):
        method = self.pool.FindServiceByName(service).methods_by_name[name]
        request = message_factory.GetMessageClass(method.input_type)
        response = message_factory.GetMessageClass(method.output_type)
        kind = self.channel.unary_stream if method.server_streaming else self.channel.unary_unary
        call = kind(f"/{service}/{name}", request.SerializeToString, response.FromString)
        return request, call

    def generate(self, timeout: float = 60, metadata=(), **fields):
        """The raw stream of responses; iterate it, or cancel it."""
        request, call = self.method("tandem.v1.Inference", "Generate")
        message = json_format.ParseDict({"model": self.model, **fields}, request())
        return call(message, timeout=timeout, metadata=metadata)

    def tokens(self, ids: list[int], **sampling) -> tuple[list[int], object]:
        """All tokens of one generation from token ids, and its last response."""
        return self.collect(self.generate(tokens={"ids": ids}, sampling=sampling))

    @staticmethod
    def collect(stream) -> tuple[list[int], object]:
        out, last = [], None
        for sequence, response in enumerate(stream):
            assert response.sequence == sequence, "deltas are numbered without a gap"
            assert last is None or not last.HasField("finish"), "nothing comes after the finish"
            out += response.token_ids
            last = response
        assert last is not None and last.HasField("finish"), "a stream never ends silently"
        return out, last

    def close(self):
        self.channel.close()


def fault(error: grpc.RpcError) -> tuple[str, str]:
    """Reason and field of a status' ErrorInfo."""
    from google.rpc import error_details_pb2, status_pb2

    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                info = error_details_pb2.ErrorInfo()
                if detail.Is(info.DESCRIPTOR) and detail.Unpack(info):
                    return info.reason, info.metadata.get("field", "")
    return "", ""
