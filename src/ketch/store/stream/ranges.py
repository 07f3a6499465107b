"""Questions about one partition's stream: where it ends, and what lies in a range of it.

`PartitionStream` is what every question about a partition starts from. `EntrySizes` decides how many entries one XRANGE
asks for, so that its reply is bound by bytes: Redis itself bounds a range by entries only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ketch.records import HEADER_SIZE
from ketch.redis.question import Command, Question, call, calls, command, keyed
from ketch.redis.resp import parse
from ketch.store import scripts, xinfo
from ketch.store.keys import Keyspace
from ketch.store.layouts.layout import Chunk, Layout
from ketch.store.offsets import OffsetNumbering
from ketch.store.topics.topic import Topic
from ketch.store.xinfo import StreamInfo

REPLY_MAX = 32 << 20  # bytes of one XRANGE's reply, should every entry be as large as the topic's largest
_COUNT_MAX = 20_000  # entries in one XRANGE: what a 1 MB fetch of 50-byte records takes
_COUNT_UNKNOWN = 500  # entries in the first XRANGE of a stream whose entries' size is not known
_SAMPLES = 20  # nodes of a stream by which Redis guesses its size
_FEW = 8  # entries in a fetch, of which each counts
_ENTRY_OVERHEAD = 8  # bytes of a record around its key and value, about
_BATCH = b"batch"  # the field of an entry that is one
_LARGE_ENTRY = 64 << 10  # bytes of an entry, on average
_EVERYTHING = 1 << 62  # bytes: a chunk of the whole reply


@dataclass(frozen=True, slots=True)
class PartitionStream:
    """One partition of one topic, and the key of its stream."""

    topic: Topic
    index: int
    key: bytes

    @classmethod
    def of(cls, topic: Topic, index: int, keys: Keyspace) -> PartitionStream:
        return cls(topic, index, keys.stream(topic.name, index))

    @property
    def layout(self) -> Layout:
        return self.topic.layout

    @property
    def numbering(self) -> OffsetNumbering:
        return self.topic.numbering

    def info_command(self) -> Command:
        """What `streams.parse_info` reads the reply of."""
        return Command(self.key, self.layout.info_command(self.key))

    def range_command(self, offset: int, count: int, end: int | None = None) -> Command:
        """XRANGE of `count` entries from the one on that holds `offset`, up to that with the record before `end`."""
        return Command(self.key, self.layout.range_command(self.key, self.numbering, offset, count, end))

    def chunk(self, reply: bytes | memoryview, max_bytes: int = _EVERYTHING) -> Chunk:
        """The batches in the reply to `range_command`; raises as `Layout.read`."""
        return self.layout.read(reply, self.numbering, max_bytes, self.topic.log_append_time)


class EntrySizes:
    """A running estimate of how large a stream's entries are.

    Args:
        largest: bytes that no entry has passed. It bounds the reply where many large entries follow small ones.
        known: bytes of an entry, about; 0 where that is not known.
    """

    __slots__ = ("_entry_is_record", "average", "largest")

    def __init__(self, layout: Layout, largest: int, known: float = 0.0) -> None:
        self._entry_is_record = layout.entry_is_record
        self.largest = largest
        self.average = known

    @classmethod
    def of(cls, stream: PartitionStream, info: StreamInfo) -> EntrySizes:
        """The estimate of a stream that was looked at just now."""
        return cls(stream.layout, stream.topic.largest_record, float(info.entry_bytes))

    def learn(self, chunk: Chunk) -> None:
        """Takes the entries of a chunk into account."""
        if chunk:
            self.learn_size(chunk.size / chunk.entries)

    def learn_size(self, size: float) -> None:
        """Takes one entry's bytes, or the average of some, into account.

        The estimate grows at once and shrinks slowly: a reply much too large costs memory, one too small a round trip.
        """
        self.average = max(size, self.average + (size - self.average) / 8)

    def count(self, max_bytes: int, spare: int = 1) -> int:
        """How many entries to ask for to get about `max_bytes`.

        Args:
            spare: how many more than fit on average, for sizes differ; not where few entries fit, which are large then.
        """
        if not self.average:
            return max(1, min(_COUNT_UNKNOWN, REPLY_MAX // self.largest))
        size, room = self.average, max_bytes
        if self._entry_is_record:
            size, room = size + _ENTRY_OVERHEAD, room - HEADER_SIZE
        count = int(room / size) + spare * (size < room / _FEW)
        return max(1, min(count, _COUNT_MAX, max(max_bytes, REPLY_MAX) // self.largest))

    def weigh(self, entries: int, most: int) -> int:
        """Bytes that so many entries likely take in a response, `most` at most; `most` where that is not known."""
        if not self.average:
            return most
        beside = _ENTRY_OVERHEAD if self._entry_is_record else 0
        return min(most, int(entries * (self.average + beside)) + HEADER_SIZE)


def info(stream: PartitionStream) -> Question[StreamInfo]:
    """Where the stream begins and ends; raises RedisError where the key holds another type."""
    (found,) = yield from infos([stream])
    return found


def infos(of: Sequence[PartitionStream]) -> Question[list[StreamInfo]]:
    """As `info`, of many streams in one round trip."""
    if not of:
        return []
    replies = yield [stream.info_command() for stream in of]
    return [xinfo.parse_info(parse(reply)) for reply in replies]


def lean_infos(of: Sequence[PartitionStream], most: int | None = None) -> Question[list[StreamInfo | None]]:
    """As `infos`, of streams whose entries may be large, in one round trip more. For whoever only looks.

    Of a stream of large entries Redis reads the first one alone, and returns its beginning; `entry_bytes` is its size,
    or the average where that is more.

    Args:
        most: bytes of large entries that Redis is to read; None for streams beyond it.
    """
    if not of:
        return []
    asked = [each for stream in of for each in _weighing(stream.key)]
    replies = yield from calls(asked)
    averages = [(size or 0) // max(1, length) for length, size in zip(replies[::2], replies[1::2], strict=True)]
    chosen: list[Command | None] = []
    left = most
    for stream, average in zip(of, averages, strict=True):
        if average < _LARGE_ENTRY:
            chosen.append(stream.info_command())
            continue
        left = None if left is None else left - average
        chosen.append(None if left is not None and left < 0 else scripts.ends(stream.key, _BATCH, HEADER_SIZE))
    answers = iter((yield [each for each in chosen if each is not None]) if any(chosen) else ())
    found = [None if each is None else xinfo.parse_info(parse(next(answers))) for each in chosen]
    for info, average in zip(found, averages, strict=True):
        if info is not None and average >= _LARGE_ENTRY:
            info.entry_bytes = max(info.entry_bytes, average)
    return found


def lengths(of: Sequence[PartitionStream]) -> Question[list[int]]:
    """How many entries streams have."""
    return (yield from calls([keyed("XLEN", stream.key) for stream in of]))


def _weighing(key: bytes) -> tuple[Command, Command]:
    return keyed("XLEN", key), command(key, "MEMORY", "USAGE", key, "SAMPLES", _SAMPLES)


def memory(stream: PartitionStream) -> Question[int]:
    """Bytes that the stream takes in Redis; 0 where there is none."""
    return (yield from call(stream.key, "MEMORY", "USAGE", stream.key, "SAMPLES", 0)) or 0


def sizes(keys: Sequence[bytes]) -> Question[list[int]]:
    """Bytes that streams take in Redis, about: of a large one Redis looks at a few nodes."""
    replies = yield from calls([command(key, "MEMORY", "USAGE", key, "SAMPLES", _SAMPLES) for key in keys])
    return [reply or 0 for reply in replies]


class Room(NamedTuple):
    """The memory of a Redis server, in bytes; 0 for what it does not say.

    Attributes:
        limit: `maxmemory`; 0 where there is none.
        machine: of the whole machine.
        used: by Redis.
    """

    limit: int
    machine: int
    used: int

    @property
    def full(self) -> float:
        """The part of the limit that is used; 0 without one."""
        return self.used / self.limit if self.limit else 0.0


def together(rooms: Sequence[Room]) -> Room:
    """The memory of several nodes. It has a limit where each of them has one."""
    limit = sum(each.limit for each in rooms) if all(each.limit for each in rooms) else 0
    return Room(limit, sum(each.machine for each in rooms), sum(each.used for each in rooms))


def room() -> Question[Room]:
    """The memory of one node."""
    text: bytes = yield from call(None, "INFO", "memory")
    fields = dict(line.split(b":", 1) for line in text.split(b"\r\n") if b":" in line)
    names = (b"maxmemory", b"total_system_memory", b"used_memory")
    return Room(*(int(fields.get(name, b"0")) for name in names))


def read(stream: PartitionStream, offset: int, count: int, end: int | None = None) -> Question[Chunk]:
    """At most `count` entries from the one on that holds `offset`, up to that with the record before `end`."""
    (reply,) = yield (stream.range_command(offset, count, end),)
    return stream.chunk(reply)
