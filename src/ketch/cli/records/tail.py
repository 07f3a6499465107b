"""Finds the last N records of a partition through the Kafka protocol alone.

Offsets need not be dense (they are times by default), so the distance from the end to the N-th last record is not
known. The search reads from some distance up to the end: too few records, and the distance grows sixteenfold; far too
many, and it is halved between the two. A read stops at N + 10,000 records, so the search stays short in front of a
log of any size.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

from ketch.views.kafka.answers import TIMEOUT, ClientError

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_SLACK = 10_000  # records beyond those wanted that a read may find
_STEP = 16


def begin(
    configuration: dict[str, Any], topic: str, earliest: dict[int, int], latest: dict[int, int], records: int
) -> dict[int, int]:
    """The offset of each partition's N-th last record, or of its first where it has fewer.

    Args:
        configuration: librdkafka's properties of a consumer with enable.partition.eof and no commits.

    Raises:
        ClientError: the broker does not answer.
    """
    from confluent_kafka import Consumer

    consumer = Consumer(configuration)
    try:
        return {p: _search(_TailedPartition(consumer, topic, p, latest[p]), earliest[p], records) for p in earliest}
    finally:
        consumer.close()


def _search(partition: _TailedPartition, earliest: int, records: int) -> int:
    few, many, distance = 0, 0, records  # many is 0 until a read found too many
    while True:
        start = max(earliest, partition.end - distance)
        count, last = partition.read(start, records)
        if count > records + _SLACK:
            many = distance
        elif count >= records or start == earliest:
            return last[0] if last else partition.end
        else:
            few = distance
        distance = (few + many) // 2 if many else distance * _STEP


class _TailedPartition:
    """Reads of one partition, from an offset to the end that it had at first."""

    def __init__(self, consumer: Consumer, topic: str, number: int, end: int) -> None:
        self.end = end
        self._consumer, self._topic, self._number = consumer, topic, number

    def read(self, start: int, keep: int) -> tuple[int, deque[int]]:
        """How many records there are from `start` on, at most a few more than too many, and the last offsets."""
        from confluent_kafka import TopicPartition

        last: deque[int] = deque(maxlen=keep)
        count = 0
        if start >= self.end:
            return count, last
        self._consumer.assign([TopicPartition(self._topic, self._number, start)])
        heard = time.monotonic()
        while count <= keep + _SLACK:
            messages = self._consumer.consume(1000, 0.1)
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > TIMEOUT:
                raise ClientError(f"Topic {self._topic} cannot be read: no answer in {TIMEOUT:.0f} s.")
            message: Any
            for message in messages:
                offset = message.offset()
                if (error := message.error()) is not None:
                    if error.code() == error._PARTITION_EOF:
                        return count, last
                    continue
                if offset < self.end:
                    count += 1
                    last.append(offset)
                if offset + 1 >= self.end:
                    return count, last
        return count, last
