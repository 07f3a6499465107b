"""The same requests to a broker with the lane and to one without: the same answers byte for byte, log and counters.

Offsets are dense, so that they depend on nothing but the requests.
"""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.lane.test_bytes import frame
from tests.support.batches import batch, records
from tests.support.http import metrics
from tests.support.kafka import API_VERSIONS, PRODUCE, SERVED, Kafka
from tests.support.ketch import KetchServer

PARTITIONS, NAMES = 3, ("plain", "records", "other", "checked", "zipped", "small")
COUNTED = ("ketch_requests_total", "ketch_messages_in_total", "ketch_bytes_in_total", "ketch_bad_requests_total")
WAYS = ("on", "coin")


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


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Side]]:
    """By the setting `lane`."""
    servers = {}
    dense = ("--default-storage-layout", "batch", "--default-offset-ids", "dense", "--metadata-max-age-ms", "600000")
    for way in ("off", *WAYS):
        server = KetchServer(tmp_path_factory.mktemp(way), "--lane", way, *dense, "--http-port", "0")
        servers[way] = Side(server.start())
    yield servers
    for side in servers.values():
        assert side.server.stop() == 0, side.server.log
        side.server.close()


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
    for n in range(100):
        producers.first += 10 * (n % 25 == 0)  # those before may have lost a batch, and be refused for ever
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
        assert metrics(sides[way].server)["ketch_lane_requests_total", "produce"] > 20
