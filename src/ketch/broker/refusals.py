"""Batches of idempotent producers that were refused and come again: what their successors and their retries are told.

A producer that pipelines sends the next batches before it hears that one was refused. These lack their predecessor
then, and OUT_OF_ORDER_SEQUENCE_NUMBER (45) would be true; but librdkafka answers it with a new epoch, under which it
sends again all that it waits for, also what is stored: twice. So

- what follows a refused batch is told NOT_ENOUGH_REPLICAS (19) instead: nothing was stored, send it again in order;
- a batch that may be stored (NOT_ENOUGH_REPLICAS_AFTER_APPEND 20) is told that again where its retry is refused
  before anything is appended: 19 and 56 would say that no attempt was stored.

It owns what is remembered of refusals, for `_KEPT_S`: after that a gap is a gap. It may not touch the log.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from ketch.errors import CorruptRecord
from ketch.records import BatchHeader, peek_header
from ketch.store.topics.topic import TopicKey

_KEPT_S = 30.0
_MOST = 10_000  # producers on partitions
_SEQUENCES = 2**31
_AGAIN = (ErrorCode.not_enough_replicas, ErrorCode.not_enough_replicas_after_append, ErrorCode.kafka_storage_error)


@dataclass(slots=True)
class _Refused:
    """What was refused of one producer on one partition.

    Attributes:
        first: the lowest base sequence of these batches: that one has to come again before all others.
        until: when this is forgotten, in seconds of the monotonic clock.
        perhaps_stored: the base sequences of those that may be stored.
    """

    epoch: int
    first: int
    until: float
    perhaps_stored: set[int] = field(default_factory=set)


class Refusals:
    """What this broker has refused lately."""

    def __init__(self) -> None:
        self._found: dict[tuple[TopicKey, int, int], _Refused] = {}

    def code(self, topic: TopicKey, partition: int, data: bytes, code: ErrorCode) -> ErrorCode:
        """What the producer of a refused batch is told.

        Args:
            data: the batch as it came.
            code: that of the error, which a batch without a producer is told.
        """
        if code is not ErrorCode.out_of_order_sequence_number and code not in _AGAIN:
            return code
        try:
            header = peek_header(data)
        except CorruptRecord:
            return code
        if header.producer_id < 0:
            return code
        key, now = (topic, partition, header.producer_id), time.monotonic()
        known = self._found.get(key)
        if known is not None and (known.until < now or known.epoch != header.producer_epoch):
            del self._found[key]
            known = None
        if code is ErrorCode.out_of_order_sequence_number:
            return ErrorCode.not_enough_replicas if known is not None and _follows(known, header) else code
        if known is None:
            self._make_room(now)
            known = self._found[key] = _Refused(header.producer_epoch, header.base_sequence, now)
        known.until = now + _KEPT_S
        if not _follows(known, header):
            known.first = header.base_sequence
        if code is ErrorCode.not_enough_replicas_after_append:
            known.perhaps_stored.add(header.base_sequence)
        return ErrorCode.not_enough_replicas_after_append if header.base_sequence in known.perhaps_stored else code

    def _make_room(self, now: float) -> None:
        if len(self._found) >= _MOST:
            self._found = {key: each for key, each in self._found.items() if each.until >= now}
        if len(self._found) >= _MOST:
            self._found.clear()


def _follows(known: _Refused, header: BatchHeader) -> bool:
    return 0 < (header.base_sequence - known.first) % _SEQUENCES < _SEQUENCES // 2
