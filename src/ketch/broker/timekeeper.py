"""What is noted of a request once its response is written: where its time went, for the histograms, and for a line in
the log where it was slow. The pipeline (`connection`) and the lane call it; it changes nothing of a request.

Times are seconds of the monotonic clock. A request's parts:

- queue: from its last byte until it was its turn on its connection;
- redis: until its answer was made, without what follows;
- wait: what it waited on purpose, for records or for the members of a group (`Request.waited`);
- send: until the answers before it were there, too, and it was written to the socket.
"""

from __future__ import annotations

import logging
import math
import time
from typing import Protocol

from ketch import metrics
from ketch.broker.tracing import Traced, Tracer
from ketch.configs.settings import Settings
from ketch.logs import ClientName

log = logging.getLogger(__name__)

_LINES_MAX = 10  # a second: in an outage of Redis every request is slow


class _Api(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def metric(self) -> str: ...
    @property
    def times(self) -> metrics.Times: ...


class Answered(Protocol):
    """What is looked at of an `api.Request`, which cannot be named here: it names what handlers use."""

    received: float
    begun: float
    waited: float
    appended: tuple[str, ...]
    traces: tuple[Traced, ...]
    client: ClientName

    @property
    def api(self) -> _Api: ...
    @property
    def version(self) -> int: ...


class Timekeeper:
    """Of one broker.

    Args:
        tracer: makes the spans of requests whose records are traced; None for none.

    Attributes:
        slow_after: seconds from which on a request is slow; infinite where none ever is.
    """

    def __init__(self, settings: Settings, tracer: Tracer | None = None) -> None:
        self._tracer = tracer
        self.slow_after = settings.slow_request_ms / 1000 or math.inf
        self._second = self._lines = self._left_out = 0

    def note(self, request: Answered, made: float, written: float) -> None:
        """A request is done with.

        Args:
            made: when its answer was.
            written: when its response was; the same where it gets none.
        """
        if request.api.times.note(request, made, written, self.slow_after):
            self.tell(request, made, written)

    def tell(self, request: Answered, made: float, written: float) -> None:
        """What there is to say of a request that was slow, or is traced. Arguments as of `note`."""
        received, waited = request.received, request.waited
        queue, redis, send = request.begun - received, made - request.begun - waited, written - made
        if request.traces and self._tracer is not None:
            parts = {"queue": queue, "redis": redis, "wait": waited, "send": send}
            epoch = time.time() - time.monotonic()
            begin = made - redis if waited else received  # a fetch may have waited since before there was the record
            self._tracer.note(request.api.metric, request.client, request.traces, epoch + begin, epoch + written, parts)
        if written - received - waited >= self.slow_after:
            self.slow(request.api.name, request.api.metric, request.version, request.client, queue, redis, send, waited)

    def slow(
        self,
        api: str,
        metric: str,
        version: int,
        client: ClientName,
        queue: float,
        redis: float,
        send: float,
        waited: float = 0.0,
    ) -> None:
        """A request was slow: counts it, and writes its line.

        Args:
            metric: the API's name in metrics.
        """
        metrics.slow.counts[metric] += 1
        left_out = self._line_is_due()
        if left_out is None:
            return
        ms = {"total": queue + redis + send + waited, "queue": queue, "redis": redis, "send": send, "wait": waited}
        facts: dict[str, str | float] = {"api": api, "version": version}
        facts |= {f"{name}_ms": round(seconds * 1000, 1) for name, seconds in ms.items()}
        besides = f"; it waited {waited * 1000:.0f} ms besides, as it should" if waited else ""
        more = f" (left out since the last line: {left_out})" if left_out else ""
        log.warning(
            "%s: slow request: %s v%d took %.0f ms: queue %.0f ms, redis %.0f ms, send %.0f ms%s%s",
            *(client, api, version, (queue + redis + send) * 1000, queue * 1000, redis * 1000, send * 1000),
            *(besides, more),
            extra={"facts": facts},
        )

    def _line_is_due(self) -> int | None:
        """How many lines were left out before one that may be written now; None where it is left out, too."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines > _LINES_MAX:
            self._left_out += 1
            return None
        left_out, self._left_out = self._left_out, 0
        return left_out
