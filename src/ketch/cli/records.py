"""Counts records in Redis itself: offsets of a topic with time ids are sparse, so no subtraction does, and no Kafka
request tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ketch.embedded import running_socket
from ketch.errors import ConfigError, StorageUnavailable
from ketch.store import native, scripts
from ketch.store.keys import Keyspace
from ketch.store.layout import Layout
from ketch.store.layouts import LAYOUTS
from ketch.store.offsets import MIN_BITS, OffsetCodec
from ketch.store.url import RedisAddress
from ketch.topicconfig import CONFIGS

if TYPE_CHECKING:
    import redis


RedisUrl = Annotated[
    str | None, typer.Option("--redis", envvar="KETCH_REDIS", help="The broker's Redis; default: its embedded one.")
]
DataDir = Annotated[
    Path, typer.Option("--data-dir", envvar="KETCH_DATA_DIR", help="Directory of the broker's embedded Valkey.")
]
KeyspaceName = Annotated[str, typer.Option("--keyspace", envvar="KETCH_KEYSPACE", help="First part of every key.")]
DEFAULT_DATA_DIR = Path("ketch-data")
DEFAULT_KEYSPACE = "korvet"


def find(url: str | None, data_dir: Path, keyspace: str) -> Records | None:
    """A view of the Redis at `url`, or of the embedded one that runs in `data_dir`; None where there is neither.

    Raises:
        ConfigError: no Redis URL.
        StorageUnavailable: it does not answer.
    """
    socket = None if url else running_socket(data_dir)
    if not url and socket is None:
        return None
    import redis

    address = RedisAddress.parse(url or f"unix://{socket}")
    client = redis.Redis.from_url(url, socket_timeout=10) if url else redis.Redis(unix_socket_path=str(socket))
    try:
        client.ping()
    except redis.RedisError as error:
        raise StorageUnavailable(f"Redis at {address.describe()}: {error}.") from None
    return Records(client, Keyspace(keyspace))


class Records:
    """Questions about the records of partitions and what groups had of them."""

    def __init__(self, client: redis.Redis, keys: Keyspace) -> None:
        self._redis: Any = client
        self._keys = keys

    def shape(self, topic: str) -> tuple[OffsetCodec, Layout]:
        """How the topic's offsets are made and its entries too; ConfigError where this Redis has no such topic."""
        fields = [CONFIGS[name].field for name in ("offsetSequenceBits", "offset.ids", "storage.layout")]
        bits, ids, layout, exists = self._redis.hmget(self._keys.topic(topic), *fields, "id")
        if exists is None:
            raise ConfigError(f"This Redis has no topic {topic}: it is another broker's, or has another --keyspace.")
        return OffsetCodec(int(bits or MIN_BITS), ids == b"dense"), LAYOUTS[(layout or b"record").decode()]

    def lag(self, group: str, topic: str, partition: int, committed: int) -> int:
        """How many records there are from `committed` on."""
        stream, (codec, layout) = self._keys.stream(topic, partition), self.shape(topic)
        if not self._redis.exists(stream):
            return 0
        known = native.parse_groups(
            [{str(k).encode(): _raw(v) for k, v in row.items()} for row in self._redis.xinfo_groups(stream)]
        ).get(group)
        if known is None or known.lag is None or not layout.entry_is_record:
            return self._count(stream, topic, committed, None)
        # Redis counts from what the group was given: the difference to what it has committed is small.
        given = codec.to_offset(*known.last_delivered) + 1
        if given >= committed:
            return known.lag + self._count(stream, topic, committed, given)
        return max(0, known.lag - self._count(stream, topic, given, committed))

    def _count(self, stream: bytes, topic: str, start: int, end: int | None) -> int:
        total = 0
        for last, records in self._runs(stream, topic, start):
            if end is not None and last >= end:
                return total + max(0, end - max(start, last - records + 1))
            total += min(records, last - start + 1)
        return total

    def _runs(self, stream: bytes, topic: str, start: int, back: bool = False) -> Iterator[tuple[int, int]]:
        """The last offset and the number of records of each entry from `start` on, or of those below, backwards."""
        codec, layout = self.shape(topic)
        at, command = _entry(codec, start), "XREVRANGE" if back else "XRANGE"
        first, last = (b"(" + at, b"-") if back else (at, b"+")
        while True:
            heads = self._redis.eval(scripts.HEADS, 1, stream, command, first, last, layout.count_step)
            for entry_id, delta in heads:
                yield codec.to_offset(*codec.parse_id(entry_id)), delta + 1
            if len(heads) < layout.count_step:
                return
            first = b"(" + heads[-1][0]

    def shifted(self, topic: str, partition: int, offset: int, records: int) -> int | None:
        """The offset so many records further on, or back; None where there are not as many."""
        stream = self._keys.stream(topic, partition)
        if records == 0:
            return offset
        return (
            self._forward(stream, topic, offset, records)
            if records > 0
            else self._back(stream, topic, offset, -records)
        )

    def _forward(self, stream: bytes, topic: str, offset: int, left: int) -> int | None:
        for last, count in self._runs(stream, topic, offset):
            here = min(count, last - offset + 1)
            if left <= here:
                return last + 1 - here + left
            left -= here
        return None

    def _back(self, stream: bytes, topic: str, offset: int, left: int) -> int | None:
        for last, count in self._runs(stream, topic, offset):  # the entry that holds it may begin below
            below = max(0, offset - (last - count + 1))
            if left <= below:
                return offset - left
            left -= below
            break
        for last, count in self._runs(stream, topic, offset, back=True):
            if left <= count:
                return last + 1 - left
            left -= count
        return None


def _entry(codec: OffsetCodec, offset: int) -> bytes:
    return codec.format_id(*codec.to_id(max(offset, 0)))


def _raw(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value
