"""The phases of `ketch bench`: produce, consume, and from producer to consumer, with the client library of the CLI.

Latency of a record is counted from when it was due: at a rate, a client that cannot keep up shows, and does not make
figures better by sending less. Without a rate a record is due when the client takes it, so the time that it waits in
the client's queue is part of it, as in kafka-producer-perf-test.sh.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ketch.cli.benching.figures import Figures, spacing
from ketch.cli.output import interrupt_held
from ketch.cli.records.reader import configuration
from ketch.views.kafka import topics
from ketch.views.kafka.answers import ClientError, explain

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer
    from confluent_kafka.admin import AdminClient

_LOOK = 0.05  # s between two looks at a client
_FETCHED = 500  # records that are measured together when consuming, as max.poll.records of Kafka's consumer
_STALLED = 30.0  # s without a record after which a phase is given up
_LETTERS = 1 << 16
_END_TO_END_RATE, _END_TO_END_S = 1000.0, 5.0  # where no rate is given

Advance = Callable[[int], None]
"""Told how many records more there are."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be done.

    Attributes:
        size: bytes of a value.
        rate: records per second of all producers; 0: as fast as they can.
        common: librdkafka's properties of every client.
        producing: those of producers beside them.
    """

    topic: str
    records: int
    size: int
    rate: float
    producers: int
    common: Mapping[str, Any]
    producing: Mapping[str, Any]

    def value(self) -> Callable[[int], bytes]:
        """Gives the value of each record: letters, as kafka-producer-perf-test.sh makes them."""
        letters = bytes(random.Random(self.size).choices(range(65, 91), k=_LETTERS + self.size))
        return lambda number: letters[number * 61 % _LETTERS :][: self.size]


class Stopped(threading.Event):
    """Set by Ctrl-C: whoever works comes to an end."""


# -- produce


def produce(load: Load, figures: Figures, stopped: Stopped, advance: Advance) -> None:
    """All producers at once; raises ClientError where records were not stored."""
    shares = [load.records // load.producers + (n < load.records % load.producers) for n in range(load.producers)]
    parts = [Figures("produce") for _ in shares]
    rate = load.rate / load.producers

    def one(number: int) -> None:
        with _producer(load) as producer:
            _send(load, producer, shares[number], rate, parts[number], stopped, advance)

    with ThreadPoolExecutor(load.producers) as pool:
        running = [pool.submit(one, number) for number in range(load.producers)]
        try:
            for each in running:
                while not each.done():
                    time.sleep(_LOOK)  # the main thread is the one that Ctrl-C comes to
                each.result()
        except KeyboardInterrupt:
            stopped.set()
    figures.stop()
    for part in parts:
        figures.records += part.records
        figures.failed += part.failed
        figures.reason = figures.reason or part.reason
        figures.latencies += part.latencies
    figures.size = figures.records * load.size
    figures.complete = not stopped.is_set()


def _send(
    load: Load, producer: Producer, count: int, rate: float, figures: Figures, stopped: Stopped, advance: Advance
) -> None:
    value, every = load.value(), spacing(load.records)
    done = figures.latencies.append

    def counted(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            figures.failed += 1
            figures.reason = figures.reason or explain(error)

    def measured(due: float) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            counted(error, message)
            if error is None:
                done(time.perf_counter() - due)

        return delivered

    began = time.perf_counter()
    sent = 0
    for number in range(count):
        due = _wait_until(producer, began + number / rate, stopped) if rate else time.perf_counter()
        if stopped.is_set() or figures.failed:
            break
        _queue(producer, load.topic, value(number), None, counted if number % every else measured(due), stopped)
        sent += 1
        if not number % 1000:
            advance(1000)
    left = _drain(producer, stopped)
    figures.records = sent - left - figures.failed


def _wait_until(producer: Producer, due: float, stopped: Stopped) -> float:
    """Serves callbacks meanwhile; gives the time back."""
    while (ahead := due - time.perf_counter()) > 0 and not stopped.is_set():
        producer.poll(min(ahead, _LOOK))
    return due


def _queue(producer: Producer, topic: str, value: bytes, key: bytes | None, reported: Any, stopped: Stopped) -> None:
    from confluent_kafka import KafkaException

    while not stopped.is_set():
        try:
            producer.produce(topic, value, key, on_delivery=reported)
            producer.poll(0)
            return
        except BufferError:  # the queue is full: the broker is slower
            producer.poll(_LOOK)
        except KafkaException as error:
            reported(error.args[0], None)
            return


def _drain(producer: Producer, stopped: Stopped) -> int:
    """Waits for acknowledgements; how many never came."""
    left, since = len(producer), time.monotonic()
    while producer.flush(_LOOK) and time.monotonic() - since < (1.0 if stopped.is_set() else _STALLED):
        if len(producer) != left:
            left, since = len(producer), time.monotonic()
    left = len(producer)
    if left:
        producer.purge()
    return left


@contextmanager
def _producer(load: Load) -> Iterator[Producer]:
    from confluent_kafka import Producer

    producer = Producer({**load.common, **load.producing})
    try:
        yield producer
    finally:
        producer.purge()


# -- consume


def consume(
    load: Load, begin: Mapping[int, int], end: Mapping[int, int], figures: Figures, stopped: Stopped, advance: Advance
) -> None:
    """Reads what lies between the offsets. Latency is the time that `_FETCHED` records take to come.

    Raises:
        ClientError: records do not come.
    """
    open_ = {partition for partition in begin if begin[partition] < end[partition]}
    with _consumer(load, begin) as consumer:
        figures.began = heard = marked = time.perf_counter()
        counted = 0
        try:
            while open_:
                with interrupt_held():
                    messages = consumer.consume(_FETCHED, _LOOK)
                now = time.perf_counter()
                records = [message for message in messages if message.error() is None]
                counted += len(records)
                if counted >= _FETCHED:
                    figures.latencies.append(now - marked)
                    counted, marked = 0, now
                if records:
                    heard = now
                elif now - heard > _STALLED:
                    raise ClientError(f"No record of {load.topic} came in {_STALLED:.0f} s.")
                figures.records += len(records)
                figures.size += sum(len(message.value() or b"") for message in records)
                advance(len(records))
                for message in messages:
                    partition = message.partition() or 0
                    if (message.offset() or 0) + (message.error() is None) >= end.get(partition, 0):
                        open_.discard(partition)
        except KeyboardInterrupt:
            stopped.set()
        figures.stop()
    figures.complete = not stopped.is_set()


@contextmanager
def _consumer(load: Load, begin: Mapping[int, int]) -> Iterator[Consumer]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({**configuration(dict(load.common)), "group.id": "ketch-bench"})
    try:
        consumer.assign([TopicPartition(load.topic, partition, offset) for partition, offset in begin.items()])
        yield consumer
    finally:
        consumer.close()


# -- from producer to consumer


def end_to_end(load: Load, ends: Mapping[int, int], figures: Figures, stopped: Stopped, advance: Advance) -> None:
    """A producer and a consumer at once, at the rate that is wanted; else at one that no queue comes from.

    Args:
        ends: where the topic ends before.

    Raises:
        ClientError: records are not stored, or do not come.
    """
    rate = load.rate or _END_TO_END_RATE
    count = end_to_end_records(load)
    due: list[float] = []
    heard = threading.Event()  # the first record, which finds connections not made yet and is not counted
    failures: list[str] = []
    value = load.value()

    def reported(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(explain(error))

    def send() -> None:
        with _producer(load) as producer:
            due.append(time.perf_counter())
            _queue(producer, load.topic, value(0), (0).to_bytes(8), reported, stopped)
            while not heard.is_set() and not stopped.is_set() and not failures:
                producer.poll(_LOOK)
            began = time.perf_counter()
            for number in range(1, count + 1):
                due.append(began + (number - 1) / rate)
                _wait_until(producer, due[-1], stopped)
                if stopped.is_set() or failures:
                    break
                _queue(producer, load.topic, value(number), number.to_bytes(8), reported, stopped)
            _drain(producer, stopped)

    with _consumer(load, ends) as consumer, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        try:
            _receive(consumer, count, due, figures, heard, failures, advance)
            sending.result()
        except KeyboardInterrupt:
            pass
        finally:
            complete = figures.records == count
            if not complete:
                stopped.set()  # the thread has to end, whatever ended this one
        figures.stop()
    figures.size, figures.complete = figures.records * load.size, complete
    if failures:
        figures.failed, figures.reason = len(failures), failures[0]


def end_to_end_records(load: Load) -> int:
    """How many records that phase has."""
    return min(load.records, max(1, int((load.rate or _END_TO_END_RATE) * _END_TO_END_S)))


def _receive(
    consumer: Consumer,
    count: int,
    due: list[float],
    figures: Figures,
    heard: threading.Event,
    failures: list[str],
    advance: Advance,
) -> None:
    at = time.perf_counter()
    while figures.records < count and not failures:
        with interrupt_held():
            message = consumer.poll(_LOOK)
        now = time.perf_counter()
        if message is None or message.error() is not None:
            if now - at > _STALLED:
                raise ClientError(f"A record did not come from its producer to its consumer in {_STALLED:.0f} s.")
            continue
        at = now
        key = message.key() or b""
        number = int.from_bytes(key) if len(key) == 8 else -1
        if not heard.is_set():
            if number == 0:
                figures.began = time.perf_counter()
                heard.set()
        elif 0 < number < len(due):
            figures.records += 1
            figures.latencies.append(now - due[number])
            advance(1)


def bounds(admin: AdminClient, topic: str) -> dict[int, int]:
    """Where each partition ends.

    Raises:
        ClientError: there is no such topic, or no answer.
    """
    (found,) = topics.describe(admin, [topic])
    return topics.offsets(admin, topic, found.places, "latest")
