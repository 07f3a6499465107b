"""Writes a copy as a producer of the Kafka protocol, each record on the partition that it has in the source.

The target gives offsets in the order of records, one after the other. So the copy's offsets are the source's moved by
one number, which is 0 in an empty topic as long as the source misses none. The offset that each record has to get is
therefore known before it is sent: any other one says that somebody else writes to the copy.

Exactly once without transactions, whose markers would take offsets: the producer is idempotent, and what a copy that
was killed had stored behind its last checkpoint is counted by the target's end (`take_up`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ketch.cli import client
from ketch.cli.copying.checkpoints import Checkpoint
from ketch.cli.copying.cluster import Cluster
from ketch.cli.copying.reading import content, record_at
from ketch.errors import KetchError
from ketch.views.kafka import topics
from ketch.views.kafka.answers import ClientError, explain

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_SETTLED = 1.0  # s that the target's ends have to stay the same before a copy that was cut off goes on
_LOOK = 0.05  # s between two looks at the producer
_STALLED = 60.0  # s without an acknowledgement after which the target is given up

_PRODUCER = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "batch.num.messages": 10_000,
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 131_072,
    "message.max.bytes": 100_000_000,  # the topic's max.message.bytes is to decide
    "message.timeout.ms": 120_000,
}


class KafkaWriter:
    """A topic's partitions in the target.

    Args:
        checkpoints: as they were when the copy was begun or taken up.
        compression: of what is sent.
    """

    def __init__(self, target: Cluster, topic: str, checkpoints: Mapping[int, Checkpoint], compression: str) -> None:
        from confluent_kafka import Producer

        self._target, self._topic = target, topic
        self._sent = {partition: checkpoint.target for partition, checkpoint in checkpoints.items()}
        self._known = dict(self._sent)
        self._skip = dict.fromkeys(checkpoints, 0)
        self._last: dict[int, Message] = {}  # the record that a partition of the copy ends with, to be compared
        self._failure: KetchError | None = None
        common = {**target.configuration(), **_PRODUCER, "compression.type": compression}
        self._producer = Producer({**common, "error_cb": client.note})

    def take_up(self) -> None:
        """Finds out what an earlier run has stored behind its checkpoints; those records are passed over.

        What that run had sent when it ended may still be on its way through the broker, so its ends have to be still.
        """
        ends = self._still_ends()
        for partition, end in ends.items():
            self._skip[partition] = end - self._sent[partition]
            if self._skip[partition] < 0:
                raise ClientError(
                    f"{self._topic} partition {partition} ends before its checkpoint: its records were lost."
                )
            if self._skip[partition] and (last := record_at(self._target, self._topic, partition, end - 1)):
                self._last[partition] = last
        self._sent, self._known = dict(ends), dict(ends)

    def ends(self) -> dict[int, int]:
        """Behind the last offset that is acknowledged, by partition."""
        return dict(self._known)

    def has_passed(self, partition: int) -> bool:
        """Whether all that an earlier run has stored has been seen in the source."""
        return not self._skip[partition]

    def write(self, partition: int, messages: Sequence[Message]) -> int:
        """Sends records; how many were not stored yet. Raises ClientError, also for those that were sent before."""
        if self._skip[partition]:
            messages = self._after_stored(partition, messages)
        for message in messages:
            self._send(partition, message)
        self._raise()
        return len(messages)

    def flush(self) -> None:
        """Waits until all is acknowledged; raises as `write`."""
        left, since = len(self._producer), time.monotonic()
        while self._producer.flush(_LOOK):
            self._raise()
            if len(self._producer) != left:
                left, since = len(self._producer), time.monotonic()
            elif time.monotonic() - since > _STALLED:
                raise ClientError(f"{self._target.bootstrap} has acknowledged nothing for {_STALLED:.0f} s.")
        self._raise()

    def finish(self, _: Mapping[int, int]) -> None:
        """As `flush`; and all that an earlier run has stored must have been found in the source."""
        self.flush()
        for partition, skip in self._skip.items():
            if skip:
                raise self._foreign(partition)

    def _send(self, partition: int, message: Message) -> None:
        _, timestamp = message.timestamp()
        expected = self._sent[partition]
        arguments: dict[str, Any] = {"partition": partition, "on_delivery": self._delivery(partition, expected)}
        if headers := message.headers():
            arguments["headers"] = headers
        while True:
            try:
                self._producer.produce(self._topic, message.value(), message.key(), timestamp=timestamp, **arguments)
                break
            except BufferError:
                self._producer.poll(_LOOK)
                self._raise()
        self._sent[partition] = expected + 1
        self._producer.poll(0)

    def _delivery(self, partition: int, expected: int) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._failure = self._failure or ClientError(
                    f"A record was not stored in {self._topic} partition {partition}: {explain(error)}."
                )
            elif message.offset() == expected:
                self._known[partition] = expected + 1
            else:
                self._failure = self._failure or self._foreign(partition)

        return delivered

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _foreign(self, partition: int) -> ClientError:
        return ClientError(
            f"Somebody else writes to {self._topic}: partition {partition} has records that were not copied."
            " Delete it and begin again."
        )

    # -- what an earlier run has stored

    def _after_stored(self, partition: int, messages: Sequence[Message]) -> Sequence[Message]:
        stored, rest = messages[: self._skip[partition]], messages[self._skip[partition] :]
        self._skip[partition] -= len(stored)
        last = self._last.pop(partition, None) if not self._skip[partition] else None
        if last is not None and content(last) != content(stored[-1]):
            raise self._foreign(partition)
        return rest

    def _still_ends(self) -> dict[int, int]:
        found, since = self._ends(), time.monotonic()
        while time.monotonic() - since < _SETTLED:
            time.sleep(_LOOK)
            now = self._ends()
            if now != found:
                found, since = now, time.monotonic()
        return found

    def _ends(self) -> dict[int, int]:
        return topics.offsets(self._target.admin, self._topic, self._sent, "latest")
