"""A real OpenTelemetry collector (rotel) that takes spans in by OTLP over gRPC, and what it passed on."""

import gzip
import http.server
import pathlib
import socket
import subprocess
import threading
import time

import rotel
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

AGENT = pathlib.Path(rotel.__file__).parent / "rotel-agent"


class Span:
    def __init__(self, service: str, span):
        self.service, self.name = service, span.name
        self.trace, self.id, self.parent = span.trace_id, span.span_id, span.parent_span_id
        self.start, self.end = span.start_time_unix_nano, span.end_time_unix_nano
        values = {each.key: each.value for each in span.attributes}
        self.attributes = {key: getattr(value, value.WhichOneof("value")) for key, value in values.items()}

    def __repr__(self):
        return f"{self.service}/{self.name}"


class Collector:
    def __init__(self):
        self.spans: list[Span] = []
        collector = self

        class Sink(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                try:
                    collector.take(ExportTraceServiceRequest.FromString(gzip.decompress(body)))
                    self.send_response(200)
                except DecodeError:
                    self.send_response(400)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.sink = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink)
        threading.Thread(target=self.sink.serve_forever, daemon=True).start()
        grpc, plain = (free_port() for _ in range(2))
        self.endpoint = f"http://127.0.0.1:{grpc}"
        self.agent = subprocess.Popen(
            [AGENT, "start", "--otlp-grpc-endpoint", f"127.0.0.1:{grpc}", "--otlp-http-endpoint", f"127.0.0.1:{plain}",
             "--exporter", "otlp", "--otlp-exporter-protocol", "http", "--otlp-exporter-compression", "gzip",
             "--otlp-exporter-endpoint", f"http://127.0.0.1:{self.sink.server_port}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )

    def take(self, request: ExportTraceServiceRequest):
        for resource in request.resource_spans:
            names = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [Span(names["service.name"], span) for span in scope.spans]

    def trace(self, number: bytes, done, seconds: float = 15) -> list[Span]:
        """All spans of a trace, once `done` says so of their names."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert self.agent.poll() is None, "the collector ended"
            found = [span for span in self.spans if span.trace == number]
            if done({span.name for span in found}):
                return found
            time.sleep(0.05)
        raise AssertionError(f"of the trace came {found}")

    def stop(self):
        self.agent.kill()
        self.agent.wait()
        self.sink.shutdown()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
