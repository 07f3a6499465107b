"""Transactions as a native Redis client writes them (docs/redis-layout.md), and what each reader must then get.

`Written` appends batches and markers to a partition's stream with redis-py, with what must change beside it, in one
MULTI. It keeps in plain lists what was written, and says slowly what is committed. `read` is a Kafka consumer's side of
the protocol, written plainly after `org.apache.kafka.clients.consumer.internals.CompletedFetch`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import redis

from tests.support import batches
from tests.support.batches import HEADER
from tests.support.kafka import Kafka

BITS = 10


@dataclass
class _Transaction:
    first: int
    fate: str = "open"


@dataclass(frozen=True)
class _Row:
    offset: int
    value: bytes | None  # None for a marker
    transaction: _Transaction | None


class Written:
    """One partition that a native client writes.

    Args:
        storage: a key of `tests.conftest.STORAGE`.
    """

    def __init__(self, client: redis.Redis, topic: str, storage: str, partition: int = 0) -> None:
        self._redis = client
        self.stream = f"korvet:stream:{topic}:{partition}"
        self.transactions = f"korvet:transactions:{{{self.stream}}}"
        self.aborted = f"korvet:aborted:{{{self.stream}}}"
        self._whole, self._dense = storage.startswith("batch"), storage.endswith("dense")
        self.end = 0 if self._dense else int(time.time() * 1000 + 1) << BITS
        self.rows: list[_Row] = []
        self.open: dict[int, _Transaction] = {}
        self.aborts: list[tuple[int, int, int]] = []  # producer, first offset, marker

    # -- writing

    def append(self, values: Sequence[bytes], producer: int | None = None, gap: int = 0) -> int:
        """Appends records, in the producer's transaction where there is one; the offset of the first."""
        base = self.end + (0 if self._dense else gap)
        begun = None
        if producer is not None and producer not in self.open:
            begun = self.open[producer] = _Transaction(base)
        with self._redis.pipeline(transaction=True) as pipe:
            if self._whole:
                kind = {} if producer is None else {"producer_id": producer, "producer_epoch": 0, "attributes": 0x10}
                whole = batches.batch(batches.records(values), **kind)
                pipe.xadd(self.stream, {"batch": whole}, self.id_of(base + len(values) - 1))
            else:
                mark = {} if producer is None else {"transaction": f"{producer}:0"}
                for n, value in enumerate(values):
                    pipe.xadd(self.stream, {"value": value, "timestamp": 5, **mark}, self.id_of(base + n))
            if begun:
                pipe.hset(self.transactions, str(producer), f"0 {self.id_of(base)} 1")
            pipe.execute()
        transaction = None if producer is None else self.open[producer]
        self.rows += [_Row(base + n, value, transaction) for n, value in enumerate(values)]
        self.end = base + len(values)
        return base

    def finish(self, producer: int, commit: bool) -> int:
        """Ends the producer's transaction; the offset of the marker."""
        transaction = self.open.pop(producer)
        offset, at, word = self.end, self.id_of(self.end), "commit" if commit else "abort"
        with self._redis.pipeline(transaction=True) as pipe:
            if self._whole:
                record = batches.record(b"\0" * 6, b"\0\0\0" + bytes([commit]))
                whole = batches.batch([record], producer_id=producer, producer_epoch=0, attributes=0x30)
                pipe.xadd(self.stream, {"batch": whole, "control": word}, at)
            else:
                fields = {"control": word, "transaction": f"{producer}:0", "coordinator.epoch": 0, "timestamp": 5}
                pipe.xadd(self.stream, fields, at)
            pipe.hdel(self.transactions, str(producer))
            if not commit:
                pipe.xadd(self.aborted, {"producer": producer, "first": self.id_of(transaction.first)}, at)
                self.aborts.append((producer, transaction.first, offset))
            pipe.execute()
        transaction.fate = word
        self.rows.append(_Row(offset, None, transaction))
        self.end += 1
        return offset

    def id_of(self, offset: int) -> str:
        """The entry id that an offset stands for."""
        return "{}-{}".format(*divmod(offset + self._dense, 1 << BITS))

    # -- what readers must get

    @property
    def last_stable(self) -> int:
        return min([each.first for each in self.open.values()], default=self.end)

    def committed(self, start: int = 0) -> list[tuple[int, bytes]]:
        """Offset and value of each record that a reader of committed records gets from an offset on."""
        return [
            (row.offset, row.value)
            for row in self.rows
            if start <= row.offset < self.last_stable
            and row.value is not None
            and (row.transaction is None or row.transaction.fate == "commit")
        ]

    def all(self, start: int = 0) -> list[tuple[int, bytes]]:
        """As `committed`, of a reader of all records."""
        return [(row.offset, row.value) for row in self.rows if row.offset >= start and row.value is not None]


def read(
    client: Kafka, topic: str, start: int, committed: bool = True, partition: int = 0, **given: Any
) -> tuple[list[tuple[int, bytes | None]], int]:
    """Offset and value of each record from `start` on, and the position after them."""
    position, found = start, list[tuple[int, bytes | None]]()
    while True:
        answer = client.fetch(topic, position, partition=partition, isolation_level=int(committed), **given)
        assert answer.error_code == 0, answer
        assert answer.last_stable_offset <= answer.high_watermark
        if not answer.records:
            return found, position
        found += [each for each in visible(answer) if each[0] >= position]
        position = _end(answer.records)


def visible(answer: Any) -> list[tuple[int, bytes | None]]:
    """The records of one partition's answer that an application gets."""
    aborted = sorted(answer.aborted_transactions or (), key=lambda each: each.first_offset)
    found: list[tuple[int, bytes | None]] = []
    active: set[int] = set()
    for base, last, attributes, producer, records in _batches(answer.records):
        while aborted and aborted[0].first_offset <= last:
            active.add(int(aborted.pop(0).producer_id))
        if attributes & 0x20:
            if records[0].key[3] == 0:
                active.discard(producer)
        elif not (attributes & 0x10 and producer in active):
            found += [(base + record.offset_delta, record.value) for record in records]
    return found


def _batches(data: bytes) -> list[tuple[int, int, int, int, list[Any]]]:
    found = []
    while data:
        size = 12 + int.from_bytes(data[8:12])
        base, _, _, _, crc, attributes, last, _, _, producer, _, _, _ = HEADER.unpack_from(data)
        assert crc == batches.crc32c.crc32c(data[21:size])
        plain = batches.decompress(attributes & 7, data[HEADER.size : size])
        found.append((base, base + last, attributes, producer, list(batches.read_records(plain))))
        data = data[size:]
    return found


def _end(data: bytes) -> int:
    return max(last for _, last, *_ in _batches(data)) + 1
