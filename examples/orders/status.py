"""Status lines of running queries: records a second, what waits, and how far each partition is."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

_PAUSE_S = 2.0  # between two lines of a query

Offsets = dict[str, dict[str, int]]


@dataclass
class _Line:
    """What a query's last line said, and when."""

    records: int
    at: float


class Position(NamedTuple):
    """Of one partition: read up to here, ends there."""

    name: str
    done: int
    end: int


class Status(StreamingQueryListener):
    """Says a line of each query at most every two seconds while it works."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._last: dict[str, _Line] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self._last[str(event.name)] = _Line(0, time.monotonic())

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        name, now = str(event.progress.name), time.monotonic()
        places = positions(event.progress.sources)
        # Not numInputRows: a query that reads a source for two of its branches counts twice.
        records = sum(place.done for place in places)
        last = self._last.setdefault(name, _Line(records, now))
        elapsed = now - last.at
        if elapsed >= _PAUSE_S and records > last.records:
            self._last[name] = _Line(records, now)
            self._say(line(name, records, (records - last.records) / elapsed, places))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass


def positions(sources: Iterable[Any]) -> list[Position]:
    """How far each partition of a query's sources is. The topics have dense offsets: they count records."""
    found = []
    for source in sources:
        latest = _offsets(source.latestOffset)
        for topic, partitions in _offsets(source.endOffset).items():
            for partition, done in partitions.items():
                end = latest.get(topic, {}).get(partition, done)
                found.append(Position(f"{topic}-{partition}", done, max(done, end)))
    return found


def line(name: str, records: int, rate: float, places: list[Position]) -> str:
    """What is said of a query."""
    lag = sum(place.end - place.done for place in places)
    where = "  ".join(f"{place.name} {place.done:,}/{place.end:,}" for place in places)
    return f"{name:<10} {records:>9,} records {rate:>8,.0f}/s  lag {lag:>6,}  {where}"


def _offsets(text: str | None) -> Offsets:
    value = json.loads(text) if text and text != "null" else {}
    return value if isinstance(value, dict) else {}


def dropped(query: StreamingQuery) -> tuple[int, int]:
    """How many rows a query has left out since it was started: late ones, duplicates."""
    operators = [operator for progress in query.recentProgress for operator in progress.stateOperators]
    late = sum(operator.numRowsDroppedByWatermark for operator in operators)
    return late, sum(operator.customMetrics.get("numDroppedDuplicateRows", 0) for operator in operators)
