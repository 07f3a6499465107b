"""The same fetches to a broker with the lane and to one without: the same answers byte for byte, and the same counters.

Sessions have ids of their own on each broker; all else depends on nothing but the requests.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import pytest
from kio.index import load_request_schema

from tests.lane.test_differential import NAMES, PARTITIONS, WAYS, Side, agree
from tests.support.batches import batch, records
from tests.support.http import metrics
from tests.support.kafka import FETCH, PRODUCE, SERVED, entity, produce
from tests.support.raw import encoded

COUNTED = ("ketch_requests_total", "ketch_bytes_out_total", "ketch_bad_requests_total")
TAKEN, CLIENT = ("ketch_lane_requests_total", "fetch"), "differential"
SESSIONS_SINCE, IDS_SINCE = 7, 13
READ = NAMES[:2]
FULL = -1


class Consumer:
    """Makes fetches, mostly as a good client does, and follows what they are answered on the first of the sides."""

    def __init__(self, seed: int, sides: list[Side]) -> None:
        self.random, self.sides = random.Random(seed), sides
        self.ends = {(name, n): 0 for name in READ for n in range(PARTITIONS)}
        self.number = (1 << 20) + (seed << 14)
        self.opened: dict[int, list[int]] = {}  # epoch by version, and the session's id on each side
        for side in sides:  # what lies there from the test before
            for name, n in self.ends:
                self.ends[name, n] = side.kafka.list_offsets(name, -1, partition=n).offset
        self.starts = dict(self.ends)

    def produce(self) -> list[bytes]:
        """To each side the same: one batch or more."""
        some, requests = self.random, []
        for _ in range(some.choice([1, 1, 2, 4])):
            name, n = some.choice(list(self.ends))
            count = some.randint(1, 3)
            # The record layout is read with the codec that was noted last, once a second at most: the clock tells.
            codec = 1 if some.random() < 0.1 and name != "records" else 0
            data = batch(records([b"v" * some.randint(0, 40)] * count), codec=codec)
            self.number += 1
            asked = entity(load_request_schema(PRODUCE, 9), produce(name, data, n))
            requests.append(encoded(asked, self.number, CLIENT))
            self.ends[name, n] += count
        return requests

    def part(self, name: str, n: int, version: int) -> dict[str, Any]:
        some, end = self.random, self.ends[name, n]
        back = some.choice([0, 0, 0, 1, 2, 5, some.randint(0, 30)])
        offset = max(end - back, self.starts[name, n]) if some.random() < 0.98 else end + 3
        most = some.choice([*[1 << 20] * 8, 150, 1])
        epoch = some.choice([-1, 0, 3]) if some.random() < 0.1 else 0
        return {"partition": n, "fetch_offset": offset, "partition_max_bytes": most, "current_leader_epoch": epoch}

    def request(self) -> list[bytes]:
        """The same fetch for each side, in its session if it has one."""
        some = self.random
        version = some.choice(list(SERVED[FETCH]))
        session = self.opened.get(version) if some.random() < 0.8 else None
        names = some.sample(READ, some.choice([1, 2])) if session is None or some.random() < 0.7 else []
        parts = [(name, [self.part(name, n, version) for n in some.sample(range(PARTITIONS), some.randint(1, 2))])
                 for name in names]  # fmt: skip
        limits = {
            "max_wait": some.choice([0, 0, 5]),
            "min_bytes": some.choice([0, 1, 1, 1, 1, 200]),
            "max_bytes": some.choice([*[50 << 20] * 8, 300, 0]),
            "isolation_level": int(some.random() < 0.3),
        }
        forgotten = some.random() < 0.02
        self.number += 1
        spoilt = self.spoiling(version) if some.random() < 0.06 else bytes
        made = []
        for i, side in enumerate(self.sides):
            topics = [{"topic": name, "topic_id": side.ids[name], "partitions": each} for name, each in parts]
            whose = {"session_id": 0, "session_epoch": FULL if session is None else 0}
            if session is not None and session[0]:
                whose = {"session_id": session[1 + i], "session_epoch": session[0]}
            gone = [{"topic": READ[0], "topic_id": side.ids[READ[0]], "partitions": [0]}] if forgotten else []
            asked = entity(
                load_request_schema(FETCH, version),
                {**limits, **whose, "topics": topics, "forgotten_topics_data": gone},
            )
            made.append(spoilt(encoded(asked, self.number, CLIENT)))
        if session is not None:
            session[0] += 1
        return made

    def open(self, version: int) -> list[bytes]:
        """The first fetch of a session."""
        parts = [(name, [self.part(name, n, version) for n in range(PARTITIONS)]) for name in READ]
        self.number += 1
        made = []
        for side in self.sides:
            topics = [{"topic": name, "topic_id": side.ids[name], "partitions": each} for name, each in parts]
            given = {"max_wait": 0, "min_bytes": 1, "session_id": 0, "session_epoch": 0, "topics": topics}
            made.append(encoded(entity(load_request_schema(FETCH, version), given), self.number, CLIENT))
        return made

    def opened_by(self, version: int, answers: list[bytes]) -> None:
        at = 4 + 4 + 2 + (version >= 12)
        self.opened[version] = [1, *(int.from_bytes(answer[at : at + 4]) for answer in answers)]

    def spoiling(self, version: int) -> Callable[[bytes], bytes]:
        """Cuts a request, or changes it behind its times; where it has ids, which differ, it only cuts."""
        where, what, cut = self.random.random(), self.random.randint(1, 255), self.random.random() < 0.3
        first = 8 + 2 + len(CLIENT) + 20

        def spoilt(request: bytes) -> bytes:
            at = first + int(where * (len(request) - first))
            if cut or version >= IDS_SINCE:
                return request[: 8 + int(where * (len(request) - 8))]
            return request[:at] + bytes([request[at] ^ what]) + request[at + 1 :]

        return spoilt

    def without_ids(self, side: int, answer: bytes | None) -> bytes | None:
        """The answer with the same ids of sessions on all sides."""
        if answer is not None:
            for version, (_, *ids) in self.opened.items():
                answer = answer.replace(ids[side].to_bytes(4), version.to_bytes(4))
        return answer


def counted(side: Side) -> dict[tuple[str, str], float]:
    kept = ("fetch", "produce", *READ)
    return {key: value for key, value in metrics(side.server).items() if key[0] in COUNTED and key[1] in kept}


def exchange(consumer: Consumer, requests: list[list[bytes]], cuts: list[int]) -> None:
    """Sends each side its requests; the answers are to be the same."""
    got = []
    for i, side in enumerate(consumer.sides):
        side.send([made[i] for made in requests], cuts)
        got.append([consumer.without_ids(i, answer) for answer in side.answers()])
    agree(got)


@pytest.mark.parametrize("seed", range(2))
def test_answers_and_counters(sides: dict[str, Side], seed: int) -> None:
    consumer = Consumer(seed, list(sides.values()))
    some, before = consumer.random, {way: metrics(sides[way].server).get(TAKEN, 0.0) for way in WAYS}
    for n in range(160):
        if n % 40 == 0:
            for version in range(SESSIONS_SINCE, max(SERVED[FETCH]) + 1):
                answers = []
                for side, made in zip(consumer.sides, consumer.open(version), strict=True):
                    side.kafka.socket.sendall(struct.pack(">i", len(made)) + made)
                    answers.append(side.kafka.receive() or b"")
                consumer.opened_by(version, answers)
        cuts = [some.randrange(1 << 20) for _ in range(some.randint(0, 2))]
        written = consumer.produce() if some.random() < 0.5 else []
        if written:
            exchange(consumer, [[each] * len(consumer.sides) for each in written], [])
        exchange(consumer, [consumer.request() for _ in range(some.choice([1, 1, 1, 2, 5]))], cuts)
    found = [counted(side) for side in sides.values()]
    assert found == [found[0]] * len(found)
    for way, least in zip(WAYS, (20, 0), strict=True):
        assert metrics(sides[way].server).get(TAKEN, 0.0) > before[way] + least
