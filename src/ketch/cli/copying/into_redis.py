"""Writes a copy straight into the Redis of a Ketch, each record on the offset that it has in the source.

An offset is an entry's id, and Redis takes any id above the last one: so gaps stay gaps, a log that begins at 1000
does so here, and the end of a stream says what is stored. That makes it exact without checkpoints: a copy that was
killed goes on behind the last entry. Batches are stored whole or not at all, and only where the stream still ends
where this writer left it, so nobody else's records get in between.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ketch.cli.broker_redis import BrokerRedis
from ketch.cli.copying import rows
from ketch.clock import now_ms
from ketch.records import Codec, DecodedBatch
from ketch.redis.driver import Begun
from ketch.redis.question import Command, Question, ask, call
from ketch.redis.resp import checked, pack
from ketch.store.append import appends
from ketch.store.append.appends import Landed, Refusal
from ketch.store.offsets import ZERO, EntryId
from ketch.store.scripts import AppendKeys
from ketch.store.stream import ranges
from ketch.store.stream.ranges import PartitionStream
from ketch.store.topics import hashes
from ketch.views import partitions
from ketch.views.kafka.answers import ClientError

if TYPE_CHECKING:
    from confluent_kafka import Message

_RECORDS, _BYTES = 5_000, 1 << 20  # of a batch: Redis serves no other client while it takes one
_IN_FLIGHT = 16  # batches
_DAY_MS = 86_400_000


@dataclass(slots=True)
class _Stream:
    """The writing end of one partition; `last` is the id that the stream ends with once all is stored."""

    of: PartitionStream
    keys: AppendKeys
    last: EntryId

    @property
    def end(self) -> int:
        return 0 if self.last == ZERO else self.of.numbering.to_offset(*self.last) + 1


class RedisWriter:
    """A topic's streams in the target's Redis."""

    def __init__(self, redis: BrokerRedis, topic: str, count: int) -> None:
        self._redis = redis
        found = redis.ask(partitions.streams(redis.keys, [(topic, index) for index in range(count)]))
        session = f"copy-{uuid.uuid4().hex}".encode()
        infos = redis.ask(ranges.infos(list(found.values())))
        self._streams = {
            index: _Stream(stream, self._keys(stream.key, session), info.last)
            for (_, index), stream, info in zip(found, found.values(), infos, strict=True)
        }
        self._topic = next(iter(found.values())).topic
        self._in_flight: deque[Begun[Landed | Refusal]] = deque()

    def _keys(self, stream: bytes, session: bytes) -> AppendKeys:
        keys = self._redis.keys
        return AppendKeys(stream, keys.producers(stream), keys.fence(stream, session))

    def ends(self) -> dict[int, int]:
        """Behind the last offset that is stored or on its way, by partition."""
        return {index: stream.end for index, stream in self._streams.items()}

    def has_passed(self, _: int) -> bool:
        """Whether nothing is stored that is still to be seen in the source: a stream ends with the last record."""
        return True

    def write(self, partition: int, messages: Sequence[Message]) -> int:
        """Sends records; how many. Raises StorageUnavailable and ClientError, also for those that were sent before."""
        stream = self._streams[partition]
        for batch in rows.batches(messages, _RECORDS, _BYTES):
            while len(self._in_flight) >= _IN_FLIGHT:
                self._take()
            self._send(stream, batch)
        return len(messages)

    def flush(self) -> None:
        """Waits until all is stored; raises as `write`."""
        while self._in_flight:
            self._take()

    def finish(self, ends: Mapping[int, int]) -> None:
        """Waits, and has the log end where the source's does, though its last offsets are no records; raises as
        `write`.
        """
        self.flush()
        for partition, end in ends.items():
            stream = self._streams[partition]
            if stream.end < end:
                last = stream.of.numbering.to_id(end - 1)
                self._redis.ask(_end_at(stream.of, last, stream.last == ZERO))
                stream.last = last

    def _send(self, stream: _Stream, batch: DecodedBatch) -> None:
        topic = self._topic
        payload = topic.layout.pack(batch, topic.intake.codec or Codec.NONE)
        self._topic = self._redis.ask(
            hashes.raise_bounds(self._redis.keys, topic, payload, batch.max_timestamp, now_ms())
        )
        base = batch.base_offset
        append = appends.chosen_here(stream.keys, stream.of.numbering, stream.last, base, payload, None, 0)
        self._in_flight.append(self._redis.begin(appends.store(append)))
        stream.last = stream.of.numbering.to_id(base + batch.record_count - 1)

    def _take(self) -> None:
        if isinstance(self._redis.finish(self._in_flight.popleft()), Refusal):
            raise foreign(self._topic.name)


def foreign(topic: str) -> ClientError:
    """Says that a copy has records that do not come from its source."""
    return ClientError(
        f"Somebody else writes to {topic}: it has records that were not copied. Delete it and begin again."
    )


def _end_at(stream: PartitionStream, last: EntryId, is_new: bool) -> Question[None]:
    """Has an idle stream end with this id."""
    entry_id = stream.numbering.format_id(*last)
    if is_new:  # Redis moves the end of a stream that is there; this one comes to be empty
        yield from call(stream.key, "XADD", stream.key, "MAXLEN", 0, entry_id, "value", "")
    else:
        # XSETID tells nobody that tracks the key (CLIENT TRACKING); what changes its expiry does.
        words = ("MULTI",), ("XSETID", stream.key, entry_id), ("PEXPIRE", stream.key, _DAY_MS), ("PERSIST", stream.key)
        together = Command(stream.key, b"".join(pack(*each) for each in (*words, ("EXEC",))), len(words) + 1)
        for reply in (yield from ask(together)):
            checked(reply)
