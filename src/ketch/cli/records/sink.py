"""The producer of `ketch produce`: sends records, waits for their acknowledgements, and counts them.

It owns the librdkafka producer and the thread that reports a broker that does not acknowledge. It does not read input
and prints nothing but that report.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ketch.cli import client
from ketch.views.kafka.answers import explain

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

# Key, value, and further arguments of Producer.produce: partition, headers, timestamp.
InputRecord = tuple[bytes | None, bytes | None, Mapping[str, Any]]

# Records between two updates of the progress bar: often enough for an eye, seldom enough to cost nothing.
_STEP = 4096
_PATIENCE = 3.0  # seconds without an acknowledgement after which the user is told
_LAST_WAIT = 1.0  # seconds that Ctrl-C leaves for acknowledgements that are on their way
_LOOK = 0.2  # seconds between two looks at the producer


class Sink:
    """A producer and what became of its records.

    Attributes:
        records: how many were taken from the input.
        failed: how many of them were not acknowledged; `reason` is the first cause, a phrase.
        size: bytes of keys and values.
        interrupted: Ctrl-C gave up records that were not acknowledged.
        seconds: how long `write` took.

    Args:
        configuration: librdkafka's properties.
    """

    def __init__(self, topic: str, configuration: dict[str, Any]) -> None:
        from confluent_kafka import Producer

        callbacks = {"on_delivery": self._delivered, "error_cb": self._connection_failed}
        self.producer: Producer = Producer({**configuration, **callbacks})
        self.topic = topic
        self.records = self.size = self.failed = 0
        self.reason = ""
        self.interrupted = False
        self.seconds = 0.0
        self._broker: str = configuration["bootstrap.servers"]
        self._unreachable = False
        self._counting = threading.Lock()  # the waiting thread serves callbacks too
        self._done = threading.Event()

    def write(self, records: Iterable[InputRecord], advance: Callable[[], None]) -> None:
        """Takes all records, until one fails, and waits for the broker.

        Ctrl-C ends the input. Records that are not acknowledged a second later are given up.
        """
        started = time.monotonic()
        waiting = threading.Thread(target=self._report_waiting, daemon=True)
        waiting.start()
        with suppress(KeyboardInterrupt):
            self._queue(records, advance)
            while self.producer.flush(_LOOK):
                advance()
        with suppress(KeyboardInterrupt):
            self.producer.flush(_LAST_WAIT)
        self._done.set()
        waiting.join()
        if len(self.producer):
            self._give_up()
        self.seconds = time.monotonic() - started

    def _queue(self, records: Iterable[InputRecord], advance: Callable[[], None]) -> None:
        from confluent_kafka import KafkaException

        produce, poll, topic = self.producer.produce, self.producer.poll, self.topic
        for key, value, options in records:
            self.records += 1
            try:
                while True:
                    try:
                        produce(topic, value, key, **options)
                        break
                    except BufferError:  # the queue is full: the broker is slower than the input
                        self._wait_for_room()
            except KafkaException as error:
                self._delivered(error.args[0], None)
            self.size += len(value or b"") + len(key or b"")
            if not self.records % _STEP:
                advance()
            poll(0)
            if self.failed:
                break

    def _wait_for_room(self) -> None:
        try:
            self.producer.poll(0.05)
        except KeyboardInterrupt:
            self.records -= 1  # this one never reached the queue
            raise

    def _give_up(self) -> None:
        self.interrupted, self.reason = True, self.reason or "interrupted"
        self.producer.purge()
        self.producer.flush(_LAST_WAIT)  # calls _delivered for each purged record

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            with self._counting:
                self.failed += 1
                self.reason = self.reason or explain(error)

    def _connection_failed(self, error: KafkaError) -> None:
        client.note(error)
        self._unreachable = self._unreachable or error.code() in (error._TRANSPORT, error._ALL_BROKERS_DOWN)

    def _report_waiting(self) -> None:
        """Tells the user once when records wait and none has been acknowledged for some seconds.

        A thread does it, because the main one may be waiting for input at that time.
        """
        acknowledged, since, told = 0, time.monotonic(), False
        while not self._done.wait(_LOOK):
            self.producer.poll(0)
            now, taken = time.monotonic(), self.records
            waiting = len(self.producer)
            if not waiting or taken - waiting > acknowledged:
                acknowledged, since, told = max(acknowledged, taken - waiting), now, False
                self._unreachable = False
            elif not told and now - since >= _PATIENCE:
                told = True
                print(self._waiting(waiting), file=sys.stderr, flush=True)

    def _waiting(self, records: int) -> str:
        unreachable = client.refusal() or "it cannot be reached"
        why = unreachable if self._unreachable else f"it has acknowledged nothing for {_PATIENCE:.0f} s"
        what = "a record" if records == 1 else f"{records:,} records"
        return f"ketch: waiting for {self._broker} to acknowledge {what}: {why}. Ctrl-C gives up."
