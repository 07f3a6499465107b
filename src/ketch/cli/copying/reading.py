"""The records of a topic's partitions from given offsets up to given ends, in pieces that fit into memory.

Records of committed transactions only, as every consumer of a copy would see them. It assigns partitions to itself: no
group comes to be in the source.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ketch.cli import client
from ketch.cli.copying.cluster import Cluster
from ketch.cli.output import interrupt_held
from ketch.cli.records.reader import configuration
from ketch.views.kafka.answers import TIMEOUT, ClientError, explain

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_COUNT_LEAST, _COUNT_MOST = 100, 10_000  # records of a piece
_PIECE = 16 << 20  # bytes of a piece, about
_WAIT = 0.1  # s for a piece to fill
_PATIENCE = 60.0  # s without a record while the source cannot be reached

Piece = Mapping[int, "list[Message]"]
"""Records by partition, in the order of their offsets."""


class Reader:
    """Reads until every partition has reached its end.

    Args:
        begin, end: offsets by partition; where they are equal nothing is read.

    Attributes:
        position: by partition, the offset up to which everything has been given.
    """

    def __init__(self, source: Cluster, topic: str, begin: Mapping[int, int], end: Mapping[int, int]) -> None:
        self._source, self._topic, self._end = source, topic, dict(end)
        self.position = dict(begin)
        self._open = {partition for partition, offset in begin.items() if offset < end[partition]}
        self._down = False

    def pieces(self) -> Iterator[Piece]:
        """The records; raises ClientError where the source cannot be read any more."""
        if not self._open:
            return
        from confluent_kafka import Consumer, TopicPartition

        common = configuration(self._source.configuration(), "read_committed")
        consumer = Consumer(
            {**common, "group.id": "ketch-copy", "fetch.wait.max.ms": 100, "error_cb": self._connection_failed}
        )
        try:
            consumer.assign([TopicPartition(self._topic, p, self.position[p]) for p in sorted(self._open)])
            yield from self._read(consumer)
        finally:
            consumer.close()

    def _read(self, consumer: Any) -> Iterator[Piece]:
        count, heard = _COUNT_LEAST, time.monotonic()
        while self._open:
            with interrupt_held():
                messages = consumer.consume(count, _WAIT)
            piece, size = self._wanted(messages)
            if messages:
                self._down, heard = False, time.monotonic()
            elif self._down and time.monotonic() - heard > _PATIENCE:
                raise ClientError(f"{self._source.bootstrap} went away before the end of {self._topic}.")
            if piece:
                yield piece
                mean = size // len(messages) + 1
                count = min(max(_PIECE // mean, 1), 2 * count, _COUNT_MOST)

    def _wanted(self, messages: list[Any]) -> tuple[Piece, int]:
        """Those that lie before the ends, and the bytes of them."""
        piece: dict[int, list[Message]] = defaultdict(list)
        size = 0
        for message in messages:
            partition, offset = message.partition(), message.offset()
            if (error := message.error()) is not None:
                self._handle(error, partition, offset)
                continue
            if partition not in self._open:
                continue
            end = self._end[partition]
            if offset < end:
                piece[partition].append(message)
                size += len(message)
                self.position[partition] = offset + 1
            if offset + 1 >= end:
                self._finish(partition)
        return piece, size

    def _finish(self, partition: int) -> None:
        self._open.discard(partition)
        self.position[partition] = self._end[partition]

    def _handle(self, error: KafkaError, partition: int, offset: int) -> None:
        code = error.code()
        if code == error._PARTITION_EOF:
            if partition in self._open and offset >= self._end[partition]:  # its last offsets are no records
                self._finish(partition)
        elif code == error._AUTO_OFFSET_RESET:
            at = self.position[partition]
            raise ClientError(
                f"{self._topic} partition {partition} does not have offset {at} any more, which was removed before it"
                " was copied. Run it again to go on behind it."
            )
        elif code in (error.UNKNOWN_TOPIC_OR_PART, error._UNKNOWN_TOPIC, error._UNKNOWN_PARTITION):
            raise ClientError(f"Topic {self._topic} cannot be read any more: {explain(error)}.")

    def _connection_failed(self, error: KafkaError) -> None:
        client.note(error)
        self._down = self._down or error.code() in (error._TRANSPORT, error._ALL_BROKERS_DOWN)


def record_at(cluster: Cluster, topic: str, partition: int, offset: int) -> Message | None:
    """The record at an offset; None where there is none, as it was removed, or is no record of a committed transaction.

    Raises:
        ClientError: no answer.
    """
    from confluent_kafka import Consumer, TopicPartition

    common = {**configuration(cluster.configuration(), "read_committed"), "group.id": "ketch-copy"}
    consumer = Consumer({**common, "auto.offset.reset": "latest"})
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        for message in consumer.consume(1, TIMEOUT):
            if message.error() is None and message.offset() == offset:
                return message
        return None
    finally:
        consumer.close()


def content(message: Message) -> tuple[Any, ...]:
    """What two records have in common that are the same but for where they are."""
    return message.key(), message.value(), message.headers() or [], message.timestamp()[1]
