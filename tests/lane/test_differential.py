"""The same requests to a broker with the lane and to one without: the same answers byte for byte, log and counters.

Offsets are dense, so that they depend on nothing but the requests.
"""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.lane.test_bytes import frame
from tests.support.batches import batch, records
from tests.support.http import metrics
from tests.support.kafka import (
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    SERVED,
    Kafka,
    fetch,
    part,
)
from tests.support.ketch import KetchServer, eventually

PARTITIONS, NAMES = 3, ("plain", "records", "other", "checked", "zipped", "small")
COUNTED = ("ketch_requests_total", "ketch_messages_in_total", "ketch_bytes_in_total", "ketch_bad_requests_total")
WAYS = ("on", "coin")
TRANSACTIONAL_ID, TRANSACTIONAL, STRANGER = "differential", 0x10, 1 << 40
TARGETS = list(itertools.product(("plain", "records"), range(PARTITIONS)))


class Side:
    """One of the two brokers, and a connection to it."""

    def __init__(self, server: KetchServer) -> None:
        self.server = server
        with Kafka(server.port) as kafka:
            for name, configs in zip(NAMES, CONFIGS, strict=True):
                kafka.create(name, PARTITIONS, **configs)
            self.ids = {name: kafka.topic_id(name) for name in NAMES}
        self.kafka = Kafka(server.port, client_id="differential")

    def send(self, frames: list[bytes], cuts: list[int]) -> None:
        data = b"".join(struct.pack(">i", len(each)) + each for each in frames)
        with suppress(ConnectionError):
            for begin, end in itertools.pairwise([0, *sorted(cut % len(data) for cut in cuts), len(data)]):
                self.kafka.socket.sendall(data[begin:end])

    def answers(self) -> list[bytes | None]:
        """What it answers to all that was sent, None for the end of the connection: then there is another one."""
        got: list[bytes | None] = []
        with suppress(ConnectionError):
            self.kafka.send(API_VERSIONS, 0)
        last = self.kafka.correlation_id
        while (answer := self.kafka.receive()) is not None:
            if answer.startswith(last.to_bytes(4)):
                return got
            for name, id_ in self.ids.items():
                answer = answer.replace(id_.bytes, name.encode().ljust(16))
            got.append(answer)
        self.kafka = Kafka(self.server.port, client_id="differential")
        return [*got, None]

    def log(self) -> dict[tuple[str, int], list[Any]]:
        with Kafka(self.server.port) as kafka:
            return {
                (name, n): [(record.offset, record.value) for record in kafka.read_all(name, 0, n)]
                for name in NAMES
                for n in range(PARTITIONS)
            }

    def counted(self) -> dict[tuple[str, str], float]:
        kept = ("produce", "api_versions", *NAMES)
        return {key: value for key, value in metrics(self.server).items() if key[0] in COUNTED and key[1] in kept}


CONFIGS: tuple[dict[str, Any], ...] = (
    {},
    {"storage_layout": "record"},
    {"compression_type": "uncompressed"},
    {"batch_validation": "full"},
    {"compression_type": "gzip"},
    {"max_message_bytes": 200},
)


class Producers:
    """Makes requests: mostly what a good client sends."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.number = 1 << 20
        self.alone = False
        self.first = 500 + 1000 * seed
        self.sequences: dict[tuple[str, int, int], int] = {}  # by topic, partition and producer

    def batch(self, name: str, index: int) -> bytes:
        """One of the record layout is sometimes malformed in its records, which Redis's module finds.

        What is on its way behind such a batch goes elsewhere, so a request with one comes alone.
        """
        some, count = self.random, self.random.randint(1, 4)
        codec = some.choice([1, 3]) if some.random() < 0.02 else 0
        if name == "records" and self.alone and some.random() < 0.1:
            return batch([*records([b"v" * 20] * count), b"\x7f"])
        if some.random() < 0.5:
            return batch(records([b"v" * some.randint(0, 40)] * count), codec=codec)
        sender = self.first + some.randint(0, 2)
        at = self.sequences.get((name, index, sender), 0)
        if some.random() < 0.96:
            self.sequences[name, index, sender] = at + count
        else:  # a duplicate, a gap, or what only resembles one of them
            at += some.choice([-count, -1, 1, 7])
        sequence = max(at, 0)
        return batch(records([b"s"] * count), producer_id=sender, producer_epoch=0, base_sequence=sequence, codec=codec)

    def request(self, version: int) -> Callable[[Side], bytes]:
        some = self.random
        names = [some.choice(NAMES[:2])] if some.random() < 0.8 else some.sample(NAMES, some.choice([1, 2, 3]))
        topics = [(name, some.sample(range(PARTITIONS), some.choice([1, 1, 2]))) for name in names]
        data = [(name, [{"index": n, "records": self.batch(name, n)} for n in parts]) for name, parts in topics]
        self.number += 1
        number, acks = self.number, some.choice([-1, 1])
        spoilt = self.spoiling(version) if some.random() < 0.05 else bytes

        def made(side: Side) -> bytes:
            asked = [{"name": name, "topic_id": side.ids[name], "partition_data": parts} for name, parts in data]
            return spoilt(frame(version, number, "differential", acks=acks, timeout=20_000, topic_data=asked))

        return made

    def spoiling(self, version: int) -> Callable[[bytes], bytes]:
        """Changes or cuts a request, but for its API and its number; where it has ids, which differ, it only cuts."""
        where, what, cut = self.random.random(), self.random.randint(0, 255), self.random.random() < 0.3
        cut = cut or version >= 13

        def spoilt(request: bytes) -> bytes:
            at = 8 + int(where * (len(request) - 8))
            return request[:at] if cut else request[:at] + bytes([what]) + request[at + 1 :]

        return spoilt


def taken(side: Side) -> float:
    """How many requests the lane has taken."""
    return metrics(side.server).get(("ketch_lane_requests_total", "produce"), 0.0)


def agree(got: list[list[bytes | None]]) -> None:
    """The answers are the same; of those before the end of a connection a client may not have got the last ones."""
    shortest = min(map(len, got))
    ended = [answers[-1:] == [None] for answers in got]
    assert ended in ([False] * len(got), [True] * len(got))
    kept = [answers[: shortest - 1] if ended[0] else answers for answers in got]
    differing = [[a.hex() if a else a for a in row] for row in zip(*kept, strict=True) if row != (row[0],) * len(row)]
    assert not differing


@pytest.mark.parametrize("seed", range(2))
def test_answers_log_and_counters(sides: dict[str, Side], seed: int) -> None:
    producers = Producers(seed)
    for n in range(80):
        producers.first += 10 * (n % 20 == 0)  # those before may have lost a batch, and be refused for ever
        version = producers.random.choice(list(SERVED[PRODUCE]))
        requests = [producers.request(version) for _ in range(producers.random.choice([1, 1, 2, 3, 12]))]
        cuts = [producers.random.randrange(1 << 20) for _ in range(producers.random.randint(0, 3))]
        got = []
        for side in sides.values():
            side.send([made(side) for made in requests], cuts)
            got.append(side.answers())
        agree(got)
    logs = [side.log() for side in sides.values()]
    assert logs == [logs[0]] * len(logs)
    counted = [side.counted() for side in sides.values()]
    assert counted == [counted[0]] * len(counted)
    for way in WAYS:
        assert taken(sides[way]) > (10 if way == "on" else 0)


class Transactions:
    """A transactional producer of all sides: the same transactions, each with the id that its side gave."""

    def __init__(self, seed: int, sides: list[Side]) -> None:
        self.random, self.sides = random.Random(seed), sides
        self.sequences: dict[tuple[str, int], int] = {}
        self.number = 1 << 24
        asked = {"transactional_id": TRANSACTIONAL_ID, "transaction_timeout": 60_000}
        begun = [side.kafka.ask(INIT_PRODUCER_ID, 4, **asked) for side in sides]
        self.producers = [{"producer_id": each.producer_id, "producer_epoch": each.producer_epoch} for each in begun]

    def begin(self, targets: list[tuple[str, int]]) -> None:
        """Adds partitions; where the transaction before is not done with, again."""
        names = dict.fromkeys(name for name, _ in targets)
        topics = [{"name": name, "partitions": [n for of, n in targets if of == name]} for name in names]
        for side, producer in zip(self.sides, self.producers, strict=True):
            whose = {f"v3_and_below_{key}": value for key, value in producer.items()}
            asked = {"v3_and_below_transactional_id": TRANSACTIONAL_ID, "v3_and_below_topics": topics, **whose}

            def added(side: Side = side, asked: dict[str, Any] = asked) -> bool:
                answer = side.kafka.ask(ADD_PARTITIONS_TO_TXN, 3, **asked)
                parts = [each for topic in answer.results_by_topic_v3_and_below for each in topic.results_by_partition]
                return all(each.partition_error_code == 0 for each in parts)

            eventually(added, what="the partitions to be added")

    def request(self, target: tuple[str, int]) -> list[bytes]:
        """One that is mostly right: of each side, as its producer has an id of its own."""
        some, (name, index) = self.random, target
        count, version = some.randint(1, 4), some.choice(list(SERVED[PRODUCE]))
        values, odd, sequence = (
            records([b"t" * some.randint(0, 40)] * count),
            some.random(),
            self.sequences.get(target, 0),
        )
        if odd >= 0.1:
            self.sequences[target] = sequence + count
        self.number += 1
        made = []
        for side, producer in zip(self.sides, self.producers, strict=True):
            sender = {**producer, "attributes": TRANSACTIONAL, "base_sequence": sequence}
            if odd < 0.05:  # not of the transaction
                sender = {"producer_id": STRANGER, "producer_epoch": 0, "base_sequence": 3, "attributes": TRANSACTIONAL}
            elif odd < 0.1:  # not transactional at all
                sender = {}
            parts = [{"index": index, "records": batch(values, **sender)}]
            asked = [{"name": name, "topic_id": side.ids[name], "partition_data": parts}]
            given = {"acks": -1, "timeout": 20_000, "transactional_id": TRANSACTIONAL_ID, "topic_data": asked}
            made.append(frame(version, self.number, "differential", **given))
        return made

    def end(self, committed: bool) -> None:
        for side, producer in zip(self.sides, self.producers, strict=True):
            answer = side.kafka.ask(END_TXN, 3, transactional_id=TRANSACTIONAL_ID, committed=committed, **producer)
            assert answer.error_code == 0


def committed(side: Side) -> list[Any]:
    """What a reader of committed records is told of each partition; the batches of some are of aborted transactions."""
    found = []
    with Kafka(side.server.port) as kafka:
        for name, n in TARGETS:
            asked = fetch([part(name, n, 0, 1 << 20)], isolation_level=1)
            answer = eventually(lambda asked=asked, kafka=kafka: stable(kafka, asked), what="every marker")
            found.append(
                (name, n, answer.last_stable_offset, [each.first_offset for each in answer.aborted_transactions])
            )
    return found


def stable(kafka: Kafka, asked: dict[str, Any]) -> Any:
    answer = kafka.ask(1, 12, **asked).responses[0].partitions[0]
    return answer if answer.last_stable_offset == answer.high_watermark else None


def test_transactions(sides: dict[str, Side]) -> None:
    producer = Transactions(3, list(sides.values()))
    some, before = producer.random, {way: taken(sides[way]) for way in WAYS}
    for _ in range(12):
        targets = some.sample(TARGETS, 2)
        producer.begin(targets)
        for _ in range(4):
            requests = [producer.request(some.choice(targets)) for _ in range(some.choice([1, 2, 8]))]
            got = []
            for n, side in enumerate(sides.values()):
                side.send([made[n] for made in requests], [])
                got.append(side.answers())
            agree(got)
        producer.end(some.random() < 0.6)
    told = [committed(side) for side in sides.values()]
    assert told == [told[0]] * len(told)
    logs = [side.log() for side in sides.values()]
    assert logs == [logs[0]] * len(logs)
    for way in WAYS:
        assert taken(sides[way]) > before[way] + (10 if way == "on" else 0)
