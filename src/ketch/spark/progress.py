"""Leaves in Redis how far a streaming query has read, for whoever looks at it (`ketch.views.spark`).

Nothing depends on it: a query's position is in its checkpoint. So whatever keeps a task from it, such as a user of
Redis that may only read, is passed over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import TypeVar

from pyspark import TaskContext

from ketch.clock import now_ms
from ketch.errors import KetchError, RightMissing
from ketch.redis.blocking import Server, connected
from ketch.spark.options import ReadOptions
from ketch.spark.plan import ReadRange
from ketch.store.append import producers
from ketch.store.keys import Keyspace

T = TypeVar("T")
log = logging.getLogger(__name__)

_AGAIN_S = 600.0  # after a refusal, which is a line in Redis's ACL LOG
_refused: dict[Server, float] = {}  # where this process may not note anything, until when


def noted(rows: Iterator[T], options: ReadOptions, what: ReadRange) -> Iterator[T]:
    """The rows of a task; once all are taken, the end of its range is noted as read by the query."""
    yield from rows
    task = TaskContext.get()
    if task is None or time.monotonic() < _refused.get(options.server, 0.0):
        return
    query, batch = task.getLocalProperty("sql.streaming.queryId"), task.getLocalProperty("streaming.sql.batchId")
    if query is None or batch is None:  # a Spark that does not tell
        return
    try:
        _note(options, what, query, int(batch))
    except KetchError as error:
        log.debug("how far %s has read %s is not noted: %s", query, what.topic, error)


def _note(options: ReadOptions, what: ReadRange, query: str, batch: int) -> None:
    stream = what.span.stream.key
    beside = Keyspace(options.keyspace).producers(stream)
    with connected(options.server) as redis:
        try:
            redis.ask(producers.note_reader(stream, beside, query, batch, what.span.end, now_ms()))
        except RightMissing as error:  # the connection stays good
            _refused[options.server] = time.monotonic() + _AGAIN_S
            log.debug("how far queries have read is not noted for a while: %s", error)
