"""Counts records in Redis itself: offsets of a topic with time ids are sparse, so no subtraction does, and no Kafka
request tells.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ketch.embedded import running_socket
from ketch.errors import ConfigError, StorageUnavailable
from ketch.store import native
from ketch.store.keys import Keyspace
from ketch.store.offsets import MIN_BITS, OffsetCodec
from ketch.store.url import RedisAddress
from ketch.topicconfig import CONFIGS

if TYPE_CHECKING:
    import redis

_STEP = 1_000  # entries at a time, not to hold up Redis

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

    def codec(self, topic: str) -> OffsetCodec:
        """How the topic's offsets are made; ConfigError where this Redis has no such topic."""
        fields = [CONFIGS[name].field for name in ("offsetSequenceBits", "offset.ids")]
        bits, ids, exists = self._redis.hmget(self._keys.topic(topic), *fields, "id")
        if exists is None:
            raise ConfigError(f"This Redis has no topic {topic}: it is another broker's, or has another --keyspace.")
        return OffsetCodec(int(bits or MIN_BITS), ids == b"dense")

    def lag(self, group: str, topic: str, partition: int, committed: int) -> int:
        """How many records there are from `committed` on."""
        stream, codec = self._keys.stream(topic, partition), self.codec(topic)
        if not self._redis.exists(stream):
            return 0
        known = native.parse_groups(
            [{str(k).encode(): _raw(v) for k, v in row.items()} for row in self._redis.xinfo_groups(stream)]
        ).get(group)
        if known is None or known.lag is None:
            return self._count(stream, codec, committed, None)
        # Redis counts from what the group was given: the difference to what it has committed is small.
        given = codec.to_offset(*known.last_delivered) + 1
        if given >= committed:
            return known.lag + self._count(stream, codec, committed, given)
        return max(0, known.lag - self._count(stream, codec, given, committed))

    def _count(self, stream: bytes, codec: OffsetCodec, start: int, end: int | None) -> int:
        total: int = 0
        first = _entry(codec, start)
        last = b"+" if end is None else b"(" + _entry(codec, end)
        while True:
            found, at = self._redis.eval(native.COUNT, 1, stream, first, last, _STEP)
            total += found
            if found < _STEP:
                return total
            first = b"(" + at

    def shifted(self, topic: str, partition: int, offset: int, records: int) -> int | None:
        """The offset so many records further on, or back; None where there are not as many."""
        stream, codec = self._keys.stream(topic, partition), self.codec(topic)
        script, start, end = native.COUNT, _entry(codec, offset), b"+"
        if records < 0:
            script, start, end = native.COUNT_BACK, b"(" + start, b"-"
        left, at = abs(records), b""
        while left:
            found, at = self._redis.eval(script, 1, stream, start, end, min(left, _STEP))
            if not found:
                return None
            left, start = left - found, b"(" + at
        if not at:
            return offset
        return codec.to_offset(*codec.parse_id(at)) + (records > 0)


def _entry(codec: OffsetCodec, offset: int) -> bytes:
    return codec.format_id(*codec.to_id(max(offset, 0)))


def _raw(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value
