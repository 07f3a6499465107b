"""Spans for OpenTelemetry: what the broker did for records whose clients trace them. Off without `otlp_endpoint`.

A span is a child of the client's, and so of the same trace. Who does not trace gets none. Spans are sent in the
background, by a thread of OpenTelemetry's SDK, to a collector (OTLP over HTTP); what that does not take is dropped.
`broker.traced` finds the traces of a request, `broker.timekeeper` calls this when its response is written.

OpenTelemetry is an extra, and imported where it is wanted alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import ketch
from ketch.configs.settings import Settings
from ketch.errors import ConfigError
from ketch.logs import ClientName


@dataclass(frozen=True, slots=True)
class Traced:
    """Records of one trace in a request.

    Attributes:
        trace, span: the ids of the trace, and of the client's span.
        records: those of the partition in the request that have just this context.
        offset: the first offset of what was stored or given of the partition; -1 where that is not known.
        error: Kafka's name of the error that the client got; "" for none.
    """

    trace: int
    span: int
    topic: str
    partition: int
    records: int
    offset: int = -1
    error: str = ""


class Tracer:
    """Makes the spans of one broker.

    Args:
        endpoint: the collector's URL, to which /v1/traces is added.

    Raises:
        ConfigError: OpenTelemetry is not installed.
    """

    def __init__(self, endpoint: str, node_id: int) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.context import Context

            from ketch.broker.exporting import Exporting
        except ImportError:
            raise ConfigError("otlp_endpoint needs OpenTelemetry: pip install 'ketch[otel]'.") from None
        self._exporting = Exporting(endpoint, node_id)
        self._tracer = self._exporting.provider.get_tracer("ketch", ketch.__version__)
        self._trace, self._nowhere = trace, Context()

    def note(
        self,
        verb: str,
        client: ClientName,
        traces: Iterable[Traced],
        begin: float,
        end: float,
        parts: Mapping[str, float],
    ) -> None:
        """A request is done with.

        Args:
            verb: its API's name in metrics.
            begin, end: seconds since the epoch.
            parts: seconds by part of its time.
        """
        common = {
            "messaging.system": "kafka",
            "messaging.operation.name": verb,
            "messaging.operation.type": "send" if verb == "produce" else "receive",
            "messaging.client.id": client.id or "",
            "client.address": client.address.rpartition(":")[0],
            **{f"ketch.{name}_ms": seconds * 1000 for name, seconds in parts.items()},
        }
        for each in traces:
            self._note(each, verb, common, round(begin * 1e9), round(end * 1e9))

    def _note(self, traced: Traced, verb: str, common: dict[str, str | float], begin: int, end: int) -> None:
        """Times in ns since the epoch."""
        trace = self._trace
        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
        parent = trace.NonRecordingSpan(trace.SpanContext(traced.trace, traced.span, is_remote=True, trace_flags=flags))
        attributes = {
            **common,
            "messaging.destination.name": traced.topic,
            "messaging.destination.partition.id": str(traced.partition),
            "messaging.batch.message_count": traced.records,
        }
        if traced.offset >= 0:
            attributes["messaging.kafka.offset"] = traced.offset
        span = self._tracer.start_span(
            f"{verb} {traced.topic}",
            context=trace.set_span_in_context(parent, self._nowhere),
            kind=trace.SpanKind.SERVER,
            attributes=attributes,
            start_time=begin,
        )
        if traced.error:
            span.set_attribute("error.type", traced.error.upper())
            span.set_status(trace.StatusCode.ERROR, traced.error.upper())
        span.end(end)

    def stop(self) -> None:
        """Sends what is left, within seconds. It blocks."""
        self._exporting.stop()


def open_tracer(settings: Settings) -> Tracer | None:
    """What makes a broker's spans, where its settings want some."""
    return None if settings.otlp_endpoint is None else Tracer(settings.otlp_endpoint, settings.node_id)
