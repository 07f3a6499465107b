"""Which traces the records of a request belong to: W3C trace contexts in their header `traceparent`, as the clients'
instrumentations for OpenTelemetry write it. It knows records and answers, not OpenTelemetry (`tracing` does).

Records are not decoded: a header of this name and size is the same bytes in every record, so it is searched for. What
is not sampled by the client is passed over, and so is what lies beyond some bytes and contexts of a request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from ketch.broker.api import Answer, Request
from ketch.broker.topics import ZERO_ID
from ketch.broker.tracing import Traced
from ketch.errors import KetchError
from ketch.records import HEADER_SIZE, decompress, peek_header, split_batches
from ketch.store.topics.topic import TopicKey, shown
from ketch.wire.pieces import BytesLike, Pieces

# Its length (11), the name, the value's length (55), both as zigzag varints, and the value in version 00.
_HEADER = re.compile(rb"\x16traceparent\x6e00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED = 1
_CONTEXTS_MAX = 100  # of a request; each makes a span
_BYTES_MAX = 8 << 20  # of a request's records, decompressed
_IDS_SINCE = 13  # of Produce

_Context = tuple[int, int]  # trace id, span id


def produced(request: Request, answer: Answer) -> tuple[Traced, ...]:
    """What a Produce request has brought."""
    answers: dict[tuple[TopicKey, int], Any] = {}
    for topic in (answer or {}).get("responses", ()):
        answers |= {(topic["name"], part["index"]): part for part in topic["partition_responses"]}
    search = _Search()
    for topic in request.body.topic_data:
        key = topic.name if request.version < _IDS_SINCE else topic.topic_id or ZERO_ID
        for part in topic.partition_data:
            told = answers.get((key, part.index), {})
            error, offset = told.get("error_code"), told.get("base_offset", -1)
            search.look(part.records or b"", _name(request, key), part.index, offset, error.name if error else "")
    return tuple(search.found)


def fetched(request: Request, answer: Answer) -> tuple[Traced, ...]:
    """What a Fetch or ShareFetch request was given."""
    search = _Search()
    for topic in (answer or {}).get("responses", ()):
        for part in topic["partitions"]:
            records = part["records"]
            if records:
                data = b"".join(records.pieces) if isinstance(records, Pieces) else records
                search.look(data, _name(request, topic["topic_id"]), part["partition_index"])
    return tuple(search.found)


def _name(request: Request, key: TopicKey) -> str:
    known = request.broker.log.topics.known(key)
    return shown(key) if known is None else known.name


class _Search:
    """Through the records of one request, within bounds."""

    def __init__(self) -> None:
        self.found: list[Traced] = []
        self._bytes = _BYTES_MAX

    def look(self, data: BytesLike, topic: str, partition: int, offset: int | None = None, error: str = "") -> None:
        """Adds what it finds in whole batches.

        Args:
            offset: None: that of the first batch.
        """
        contexts: dict[_Context, int] = {}
        with suppress(KetchError):  # what is damaged was refused, or will be by the client
            for batch in split_batches(data):
                header = peek_header(batch)
                offset = header.base_offset if offset is None else offset
                records = decompress(header.codec, batch[HEADER_SIZE:], self._bytes)
                self._bytes -= len(records)
                for context in _contexts(records):
                    contexts[context] = contexts.get(context, 0) + 1
        first = -1 if offset is None else offset
        for (trace, span), count in list(contexts.items())[: _CONTEXTS_MAX - len(self.found)]:
            self.found.append(Traced(trace, span, topic, partition, count, first, error))


def _contexts(records: BytesLike) -> Iterator[_Context]:
    for found in _HEADER.finditer(records):
        trace, span, flags = (int(text, 16) for text in found.groups())
        if trace and span and flags & _SAMPLED:
            yield trace, span
