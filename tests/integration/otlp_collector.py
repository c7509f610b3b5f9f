"""A collector of spans on this machine: OTLP over HTTP, decoded."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector(ThreadingHTTPServer):
    """Keeps every span it is sent, with the name of its service."""

    daemon_threads = True

    def __init__(self) -> None:
        self.spans: list[tuple[str, Span]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def endpoint(self) -> str:
        """Its address, without the path of a signal."""
        return f"http://127.0.0.1:{self.server_port}"

    def named(self, name: str) -> list[tuple[str, Span]]:
        """Return the spans of this name with their services."""
        return [(service, span) for service, span in self.spans if span.name == name]


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:  # the library's name
        assert self.path == "/v1/traces"
        assert self.headers["content-type"] == "application/x-protobuf"
        body = self.rfile.read(int(self.headers["content-length"]))
        for sent in ExportTraceServiceRequest.FromString(body).resource_spans:
            about = {item.key: item.value.string_value for item in sent.resource.attributes}
            for scope in sent.scope_spans:
                self.server.spans += [(about["service.name"], span) for span in scope.spans]
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def collecting() -> Iterator[Collector]:
    """Yield a collector that listens."""
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
