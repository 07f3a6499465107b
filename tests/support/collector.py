"""A collector of OpenTelemetry (OTLP over HTTP) in this process: it keeps the spans that it is sent."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class Span:
    """As it came; ids in hex, times in ns."""

    name: str
    trace: str
    parent: str
    begin: int
    end: int
    error: str
    attributes: dict[str, Any]
    resource: dict[str, Any]


class Collector:
    """Where spans go to: `url` is its address, `spans` what came."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.spans: list[Span] = []

    def take(self, data: bytes) -> None:
        for group in ExportTraceServiceRequest.FromString(data).resource_spans:
            resource = _values(group.resource.attributes)
            for scope in group.scope_spans:
                for span in scope.spans:
                    trace, parent = span.trace_id.hex(), span.parent_span_id.hex()
                    times, error = (span.start_time_unix_nano, span.end_time_unix_nano), span.status.message
                    attributes = _values(span.attributes)
                    self.spans.append(Span(span.name, trace, parent, *times, error, attributes, resource))


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextmanager
def collector() -> Iterator[Collector]:
    """One that listens on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            known = self.path == "/v1/traces"
            if known:
                made.take(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
