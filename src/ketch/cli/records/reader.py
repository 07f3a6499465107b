"""Reads partitions of a topic and prints their records: partitions that it chose itself, or those that a group gives.

`RecordReader` assigns partitions with offsets: no consumer group comes to be, nothing is committed. `GroupReader` is a
member of a group and commits what it has printed, every few seconds and at its end; what was printed but not yet
committed when a process is killed is printed again by the next member.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ketch.cli import client
from ketch.cli.output import interrupt_held
from ketch.cli.records.formats import Formatter
from ketch.views.kafka.answers import TIMEOUT, ClientError, explain

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

_BATCH = 1000  # records a call into librdkafka gives at most
_WAIT = 0.1  # seconds it waits for that many: the delay of a lone record under --follow
_PATIENCE = 3.0  # seconds without an assignment after which the user is told
_RETRY = 0.1  # seconds between two commits at the end, where the broker says that it may come again


def configuration(common: dict[str, Any], isolation: str = "read_uncommitted") -> dict[str, Any]:
    """librdkafka's properties of a consumer that assigns partitions to itself.

    Args:
        isolation: its `isolation.level`.
    """
    return {
        **common,
        "group.id": "ketch-consume",  # the library wants one; assign() with offsets makes no use of it
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": str(isolation),
        "fetch.queue.backoff.ms": 10,  # by default a full queue stops fetching for a second
        "queued.min.messages": 200_000,
    }


class Printer:
    """Writes records to stdout, those with `key` where one is given, until there were `maximum`."""

    def __init__(self, formatter: Formatter, maximum: int | None, key: bytes | None) -> None:
        self._formatter, self._left, self._key = formatter, maximum, key

    @property
    def batch(self) -> int:
        """How many records to ask for at once."""
        return _BATCH if self._left is None or self._key is not None else min(self._left, _BATCH)

    @property
    def full(self) -> bool:
        return self._left == 0

    def print(self, message: Message) -> None:
        if self._key is not None and message.key() != self._key:
            return
        sys.stdout.buffer.write(self._formatter(message) + b"\n")
        if self._left is not None:
            self._left -= 1


class RecordReader:
    """Reads partitions from `begin` up to `end`, or for ever where that is None. Offsets by partition."""

    def __init__(
        self, topic: str, begin: dict[int, int], end: dict[int, int] | None, configuration: dict[str, Any]
    ) -> None:
        self.topic = topic
        self.begin = begin
        self.end = end
        self.open = {p for p in begin if end is None or begin[p] < end[p]}
        self.down = False
        self._offsets: dict[int, int] = {}  # after the last record printed of each partition, until `_printed`
        self.configuration = {**configuration, "error_cb": self._connection_failed}

    def run(self, printer: Printer) -> None:
        """Prints. Raises ClientError when a partition cannot be read any more."""
        if not self._goes_on():
            return
        from confluent_kafka import Consumer

        consumer = Consumer(self.configuration)
        try:
            self._start(consumer)
            self._print(consumer, printer)
        except KeyboardInterrupt:  # records may have been printed whose offsets `_printed` has not been given yet
            self._printed(consumer, self._offsets)
            raise
        finally:
            self._leave(consumer)

    def _start(self, consumer: Consumer) -> None:
        from confluent_kafka import TopicPartition

        consumer.assign([TopicPartition(self.topic, p, self.begin[p]) for p in sorted(self.open)])

    def _goes_on(self) -> bool:
        return bool(self.open)

    def _printed(self, consumer: Consumer, offsets: dict[int, int]) -> None:
        """After each batch, with the offset after the last record of each partition."""

    def _leave(self, consumer: Consumer) -> None:
        """Closes the consumer, if that ends in TIMEOUT: librdkafka waits for a lost broker for session.timeout.ms."""
        closing = threading.Thread(target=self._close, args=(consumer,), daemon=True)
        closing.start()
        closing.join(TIMEOUT)

    def _close(self, consumer: Consumer) -> None:
        consumer.close()

    def _print(self, consumer: Consumer, printer: Printer) -> None:
        heard = time.monotonic()
        while self._goes_on() and not printer.full:
            with interrupt_held():
                messages = consumer.consume(printer.batch, _WAIT)
            if messages:
                self.down, heard = False, time.monotonic()
            elif self.down and self.end is not None and time.monotonic() - heard > TIMEOUT:
                raise ClientError("The broker went away before the end of the topic.")
            message: Any
            for message in self._wanted(messages):
                printer.print(message)
                self._offsets[message.partition()] = message.offset() + 1
                if printer.full:
                    break
            sys.stdout.buffer.flush()
            self._printed(consumer, self._offsets)
            self._offsets = {}

    def _connection_failed(self, error: KafkaError) -> None:
        """Under --follow a broker may come back; without it there is an end to reach."""
        client.note(error)
        self.down = self.down or error.code() in (error._TRANSPORT, error._ALL_BROKERS_DOWN)

    def _wanted(self, messages: list[Any]) -> Iterator[Message]:
        """The records among them that lie before the end; partitions that are through leave `open`."""
        for message in messages:
            partition, offset = message.partition(), message.offset()
            if error := message.error():
                self._handle_error(error, partition, offset)
                continue
            if self.end is None:
                yield message
                continue
            end = self.end[partition]
            if partition in self.open and offset < end:
                yield message
            if offset + 1 >= end:
                self.open.discard(partition)

    def _handle_error(self, error: Any, partition: int, offset: int) -> None:
        from confluent_kafka import KafkaError

        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            # Its offset is where the next record would be: the tail of a log may hold none (transaction markers).
            if self.end is not None and offset >= self.end[partition]:
                self.open.discard(partition)
        elif code == KafkaError._AUTO_OFFSET_RESET:
            raise ClientError(f"Partition {partition} has no offset {offset}; it may have been trimmed meanwhile.")
        elif code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
            raise ClientError(f"Topic {self.topic} cannot be read any more: {explain(error)}.")


class GroupReader(RecordReader):
    """A member of a consumer group. Its partitions, and where they end, are known when the group gives them.

    Args:
        ends: the end offsets of the partitions that it is given; None: for ever.
        at_end: begin at the end, not at the beginning, where the group has committed nothing.
    """

    def __init__(
        self,
        topic: str,
        group: str,
        ends: Callable[[list[int]], dict[int, int]] | None,
        at_end: bool,
        configuration: dict[str, Any],
    ) -> None:
        member = {
            "group.id": group,
            "client.id": "ketch-consume",
            "enable.auto.commit": True,
            "auto.offset.reset": "latest" if at_end else "earliest",
        }
        super().__init__(topic, {}, None if ends is None else {}, {**configuration, **member})
        self.group = group
        self._ends = ends
        self._joined = self._told = False
        self._since = time.monotonic()
        self._uncommitted: str | None = f"no answer from a Kafka broker in {TIMEOUT:.0f} s"  # why, until it is

    def _start(self, consumer: Consumer) -> None:
        consumer.subscribe([self.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def _goes_on(self) -> bool:
        if not self._joined and not self._told and time.monotonic() - self._since > _PATIENCE:
            self._told = True
            print(f"ketch: waiting for group {self.group} to assign partitions.", file=sys.stderr, flush=True)
        return not self._joined or self.end is None or bool(self.open)

    def _assigned(self, _: Consumer, assigned: list[TopicPartition]) -> None:
        self._joined = True
        partitions = [each.partition for each in assigned]
        self.open.update(partitions)
        if self.end is not None and self._ends is not None:
            self.end.update(self._ends([p for p in partitions if p not in self.end]))
        if not partitions:
            print(f"ketch: group {self.group} has more members than partitions; none is left.", file=sys.stderr)

    def _revoked(self, _: Consumer, revoked: list[TopicPartition]) -> None:
        self.open.difference_update(each.partition for each in revoked)

    def _printed(self, consumer: Consumer, offsets: dict[int, int]) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        for partition, offset in offsets.items():
            try:
                consumer.store_offsets(offsets=[TopicPartition(self.topic, partition, offset)])
            except KafkaException:
                continue  # the partition has another owner since; it reads these records again

    def _leave(self, consumer: Consumer) -> None:
        super()._leave(consumer)
        if self._uncommitted is not None:
            why = f"group {self.group} may print the last records again: {self._uncommitted}"
            print(f"ketch: {why}.", file=sys.stderr)

    def _close(self, consumer: Consumer) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not self._commit(consumer) and time.monotonic() < deadline:
            time.sleep(_RETRY)
        super()._close(consumer)

    def _commit(self, consumer: Consumer) -> bool:
        """Commits what was printed. False: the broker refuses it for now; close() would not repeat its commit."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            consumer.commit(asynchronous=False)
        except KafkaException as failure:
            error = failure.args[0]
            if error.code() != KafkaError._NO_OFFSET:  # something was printed since the last commit
                self._uncommitted = explain(error)
                return not error.retriable()
        self._uncommitted = None
        return True

    def _handle_error(self, error: Any, partition: int, offset: int) -> None:
        super()._handle_error(error, partition, offset)
        if error.code() > 0 and not error.retriable():  # of the broker, not of the library
            raise ClientError(f"Group {self.group} cannot be read with: {explain(error)}.")
