"""How spans get to a collector: OpenTelemetry's SDK and its exporter for OTLP over HTTP. Only `tracing` imports this,
and only where spans are made, as OpenTelemetry is an extra.

A collector that is not there is tried again by the exporter for ten seconds, then those spans are dropped. Of that the
exporter would log four lines; here it is one a minute.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

import ketch
from ketch.complaints import Complaints

log = logging.getLogger(__name__)

_PATIENCE_S = 2.0  # for a collector to take what is left when the broker stops


class Exporting:
    """The way to one collector.

    Args:
        endpoint: its URL, to which /v1/traces is added.

    Attributes:
        provider: makes tracers. It goes by OpenTelemetry's own variables, too: OTEL_SERVICE_NAME,
            OTEL_EXPORTER_OTLP_HEADERS, OTEL_TRACES_SAMPLER, ...
    """

    def __init__(self, endpoint: str, node_id: int) -> None:
        named = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": "ketch"}
        resource = Resource.create({**named, "service.instance.id": str(node_id), "service.version": ketch.__version__})
        self.provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._exporter = _Complaining(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces"), endpoint)
        self.provider.add_span_processor(BatchSpanProcessor(self._exporter))
        logging.getLogger(trace_exporter.__name__).setLevel(logging.CRITICAL)

    def stop(self) -> None:
        """Sends what is left, within seconds. It blocks."""
        giving_up = threading.Timer(_PATIENCE_S, self._exporter.shutdown)
        giving_up.start()
        self.provider.shutdown()
        giving_up.cancel()


class _Complaining(SpanExporter):
    """An exporter whose failures are logged, a line a minute. Its methods run in the SDK's thread."""

    def __init__(self, inner: SpanExporter, endpoint: str) -> None:
        self._inner, self._endpoint, self._complaints = inner, endpoint, Complaints()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See `SpanExporter.export`."""
        result = self._inner.export(spans)
        if result is SpanExportResult.SUCCESS:
            self._complaints.over()
        elif line := self._complaints.line("takes no spans, they are dropped", time.monotonic()):
            log.warning("the collector at %s %s", self._endpoint, line)
        return result

    def shutdown(self) -> None:
        """See `SpanExporter.shutdown`: what is on its way is not tried again."""
        self._inner.shutdown()
