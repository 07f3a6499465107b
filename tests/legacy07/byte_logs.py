"""Brokers' byte logs in this process, over a real Redis, and a client that walks them as one of Kafka 0.7 does."""

from __future__ import annotations

import gzip
import itertools
import random
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import accumulate

import cramjam

from ketch.clock import now_ms
from ketch.configs.settings import Settings
from ketch.errors import OffsetOutOfRange
from ketch.legacy07.bytelog import EARLIEST, ByteLog, ByteLogs
from ketch.legacy07.errors import InvalidFetchSize
from ketch.legacy07.messages import GZIP, NONE, SNAPPY, Message
from ketch.log.appending.notes import TopicNotes
from ketch.log.creation import create_on_demand
from ketch.log.log import Log
from ketch.records import DecodedBatch, columns_to_records
from ketch.redis.links import links
from ketch.redis.server import Server
from tests.support.redis_servers import RedisServer

INFLATED_MAX = 1 << 20


class Broker:
    """What of a broker a byte log needs."""

    def __init__(self, redis: RedisServer, magic: int = 1) -> None:
        self._settings = Settings(redis=redis.url)
        self.log = Log(self._settings, links(Server(redis.url).address(), self._settings.redis_timeout_ms / 1000))
        self.logs = ByteLogs(self.log, TopicNotes(self.log.topics), INFLATED_MAX, magic)

    async def get(self, topic: str, create: bool = False) -> ByteLog:
        if create and await self.log.topics.get(topic) is None:
            await create_on_demand(self.log, self._settings, topic, "test")
        return await self.logs.get(topic, 0)


@asynccontextmanager
async def brokers(redis: RedisServer, count: int = 1, magic: int = 1) -> AsyncIterator[list[Broker]]:
    """Args: magic: the usual one (`legacy_magic`)."""
    started = [Broker(redis, magic) for _ in range(count)]
    for broker in started:
        await broker.log.start()
    try:
        yield started
    finally:
        for broker in started:
            await broker.log.stop()


def plain(value: bytes) -> Message:
    return Message(0, NONE, value)


def compressed(codec: int, values: Sequence[bytes], nested: bool = False) -> Message:
    """As a producer of that time made it: a set within a message, or one more around that."""
    data = b"".join(plain(value).encode() for value in values)
    message = Message(1, codec, squeeze(codec, data))
    return Message(1, codec, squeeze(codec, message.encode())) if nested else message


def squeeze(codec: int, data: bytes) -> bytes:
    assert codec in (GZIP, SNAPPY)
    return gzip.compress(data, 5, mtime=0) if codec == GZIP else bytes(cramjam.snappy.compress_raw(data))


def keyed(values: list[bytes | None]) -> DecodedBatch:
    """Records with a key and a header each."""
    count = len(values)
    bits = bytearray((count + 7) // 8)
    for n, value in enumerate(values):
        bits[n >> 3] |= (value is not None) << (n & 7)
    ends = array("i", accumulate((len(value or b"") for value in values), initial=0))
    ones = (None, 0, array("i", range(count + 1)), b"k" * count)
    lists = (None, 0, array("i", range(count + 1)))
    times, data = array("q", [now_ms()]) * count, b"".join(value or b"" for value in values)
    column = (bytes(bits), 0, ends, data)
    (batch,) = columns_to_records(
        count, array("q", range(count)), times, ones, column, lists, ones, ones, 2**31 - 1, False
    )
    return batch


class Walker:
    """Walks from the earliest position by LENGTH + 4, and checks that no byte ever changes its place.

    Attributes:
        seen: every byte that was read, by position; -1 where none was.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.seen: dict[int, int] = {}

    async def walk(self, log: ByteLog) -> list[tuple[int, bytes]]:
        """Every message there is and its position."""
        (position,) = await log.offsets(EARLIEST, 1)
        found: list[tuple[int, bytes]] = []
        while True:
            chunk = await self.fetch(log, position)
            if not chunk:
                return found
            for message in whole_messages(chunk):
                found.append((position, message))
                position += len(message)

    async def fetch(self, log: ByteLog, position: int) -> bytes:
        """A chunk of some size; at least the message there."""
        for size in itertools.count(self._random.choice((0, 40, 300, 5_000, 1 << 20)), 25):
            try:
                chunk = await log.read(position, size)
            except InvalidFetchSize:
                continue
            assert len(chunk) <= size
            self.note(position, chunk)
            return chunk
        raise AssertionError

    def note(self, position: int, chunk: bytes) -> None:
        for at, byte in enumerate(chunk, position):
            assert self.seen.setdefault(at, byte) == byte, f"byte {at} has changed"


def whole_messages(chunk: bytes) -> list[bytes]:
    """The messages of a chunk, each with its length, but for one that is cut off at its end."""
    messages = []
    while len(chunk) >= 4 and len(chunk) >= (size := 4 + int.from_bytes(chunk[:4])):
        messages.append(chunk[:size])
        chunk = chunk[size:]
    return messages


async def refused(log: ByteLog, position: int) -> bool:
    try:
        await log.read(position, 1 << 20)
    except OffsetOutOfRange:
        return True
    return False
