"""The topic catalog in Redis: which topics exist, and each one's hash.

A topic is created as hash (HSETNX on `id` decides a race), id map, then the set, which is the moment it exists; it is
deleted in reverse, streams between. A broker that dies on the way leaves a hash that no set names: it is purged by the
next creation of that name.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ketch.clock import now_ms
from ketch.errors import InvalidTimestamp, TopicExists, UnknownTopicOrPartition
from ketch.store.keys import Keyspace
from ketch.store.layout import Layout, Payload
from ketch.store.layouts import LAYOUTS
from ketch.store.link import Link
from ketch.store.offsets import OffsetCodec
from ketch.store.streams import StreamInfo
from ketch.topicconfig import CONFIGS

log = logging.getLogger(__name__)

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_TO_HASH = {"uncompressed": "none"}  # the seed layout's word for compression.type=uncompressed
_CACHE_MAX = 20_000  # names; a client that asks for ever new ones must not fill memory
_LEAD_STEP = 1 << 16  # ms; the lead is kept in steps, about a minute each, so that it is seldom written
LARGE_RECORD = 1 << 10  # bytes; only larger ones are noted in a topic's hash
_ABANDONED_MS = 5_000  # a creation that takes longer has died on the way

# KEYS hash. ARGV field, value, ...; the first pair is the id. 1 when this call made the hash.
_CREATE_HASH = """
if redis.call('HSETNX',KEYS[1],ARGV[1],ARGV[2])==0 then return 0 end
redis.call('HSET',KEYS[1],unpack(ARGV))
return 1"""

# KEYS hash. ARGV topic id, field, value, ...: an empty value takes the field away. 0 where the topic is another by now.
_ALTER = """
if redis.call('HGET',KEYS[1],'id')~=ARGV[1] then return 0 end
for i=2,#ARGV,2 do
if ARGV[i+1]=='' then redis.call('HDEL',KEYS[1],ARGV[i]) else redis.call('HSET',KEYS[1],ARGV[i],ARGV[i+1]) end
end
return 1"""

# KEYS hash. ARGV topic id, number of partitions, which only grows. 0 as above; 2 where it has as many.
_GROW = """
if redis.call('HGET',KEYS[1],'id')~=ARGV[1] then return 0 end
if tonumber(redis.call('HGET',KEYS[1],'partitions'))>=tonumber(ARGV[2]) then return 2 end
redis.call('HSET',KEYS[1],'partitions',ARGV[2])
return 1"""

# KEYS hash. ARGV topic id, field, value: a field that Ketch itself keeps, in the hash of a topic that exists.
NOTE = "if redis.call('HGET',KEYS[1],'id')==ARGV[1] then redis.call('HSET',KEYS[1],ARGV[2],ARGV[3]) end"


def legal_name(topic: str) -> bool:
    """Kafka's rule (`Topic.validate`): 1 to 249 of a-z A-Z 0-9 . _ -, and neither `.` nor `..`."""
    return _LEGAL_NAME.fullmatch(topic) is not None and topic not in (".", "..")


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as its hash says."""

    name: str
    id: uuid.UUID
    partitions: int
    created: int  # ms; an untrimmed partition's log starts here
    codec: OffsetCodec
    configs: Mapping[str, str] = field(hash=False)  # by Kafka's name; what the hash lacks, the broker's defaults fill
    codec_seen: str = "none"  # compression the last producer used, for compression.type=producer
    message_bytes: int = 0  # average size of a record, 0 unknown
    largest_record: int = LARGE_RECORD  # bytes that no record of it has passed
    timestamp_lead: int = 0  # ms that a record's timestamp lay at most ahead of the clock when it was appended

    @property
    def layout(self) -> Layout:
        """How its batches lie in its streams."""
        return LAYOUTS[self.configs["storage.layout"]]

    @property
    def first_offset(self) -> int:
        """Where an untrimmed partition of it begins."""
        return 0 if self.codec.dense else self.created << self.codec.bits

    def extent(self, info: StreamInfo) -> tuple[int, int]:
        """Where the log in one of its streams starts and ends: offsets.

        The end lies behind the last id ever generated, not behind the last entry: trimming must not move it. A log that
        nothing was removed from starts where the topic was created.
        """
        end = max(self.codec.to_offset(*info.last) + 1, self.first_offset)
        first = self.layout.start(info, self.codec)
        start = end if first is None else first
        return min(start, self.first_offset) if info.removed == 0 else start, end

    def check_timestamps(self, timestamps: Iterable[int], now: int) -> None:
        """Holds producers' timestamps against the clock, ms; -1 is none.

        Raises:
            InvalidTimestamp: one is too far off (`message.timestamp.before.max.ms`, `message.timestamp.after.max.ms`).
        """
        before = int(self.configs["message.timestamp.before.max.ms"])
        after = int(self.configs["message.timestamp.after.max.ms"])
        for timestamp in timestamps:
            if timestamp != -1 and not now - before <= timestamp <= now + after:
                raise InvalidTimestamp(
                    f"Timestamp {timestamp} is not within {before} ms before and {after} ms after {now},"
                    f" as topic {self.name} wants it."
                )

    def notes(self, batch: Payload, latest: int, now: int) -> dict[str, int]:
        """What readers go by and a batch that is about to be stored changes, as fields of the topic's hash.

        Args:
            latest: the latest timestamp in the batch, ms.
        """
        noted = {}
        lead = latest - now
        if lead > self.timestamp_lead:
            noted["timestampLead"] = -(-lead // _LEAD_STEP) * _LEAD_STEP
        if batch.size > self.largest_record and (largest := batch.largest()) > self.largest_record:
            noted["largestRecord"] = 1 << largest.bit_length()
        return noted


def _parse(name: str, reply: list[bytes], keys: Keyspace, defaults: Mapping[str, str]) -> Topic | None:
    """The topic from the reply of HGETALL; None, and an error in the log, where its hash is damaged."""
    hash_ = {key.decode(): value.decode() for key, value in zip(reply[::2], reply[1::2], strict=True)}
    configs = {c.name: hash_[c.field] if c.field in hash_ else defaults[c.name] for c in CONFIGS.values()}
    if configs["compression.type"] == "none":
        configs["compression.type"] = "uncompressed"
    try:
        return Topic(
            name=name,
            id=uuid.UUID(hash_["id"]),
            partitions=int(hash_["partitions"]),
            created=int(hash_.get("created", 0)),
            codec=OffsetCodec(int(configs["offsetSequenceBits"]), configs["offset.ids"] == "dense"),
            configs=configs,
            codec_seen=hash_.get("producerCompression", "none"),
            message_bytes=int(hash_.get("messageBytes") or 0),
            largest_record=max(int(hash_.get("largestRecord", 0)), LARGE_RECORD),
            timestamp_lead=int(hash_.get("timestampLead", 0)),
        )
    except (KeyError, ValueError) as error:  # somebody's hand
        log.error("topic %s: its hash %s is damaged (%r)", name, keys.topic(name).decode(), error)
        return None


def lookups(keys: Keyspace, names: Iterable[str]) -> list[tuple[bytes | str | int, ...]]:
    """The commands that ask for topics by name; `read_lookups` is for their replies."""
    return [command for name in names for command in (("SISMEMBER", keys.topics, name), ("HGETALL", keys.topic(name)))]


def read_lookups(
    names: Iterable[str], replies: list[Any], keys: Keyspace, defaults: Mapping[str, str]
) -> list[Topic | None]:
    """The topics, None for each that does not exist or is damaged."""
    asked = zip(names, replies[::2], replies[1::2], strict=True)
    return [_parse(name, hash_, keys, defaults) if exists else None for name, exists, hash_ in asked]


class Catalog:
    """Reads and writes the catalog; holds what it read for at most `max_age` seconds.

    Args:
        defaults: configs of a topic whose hash does not say.
    """

    def __init__(self, keys: Keyspace, link: Link, max_age: float, defaults: Mapping[str, str]) -> None:
        self._keys, self._link, self._max_age, self._defaults = keys, link, max_age, defaults
        self._cache: dict[str, tuple[float, Topic | None]] = {}
        self._names: tuple[float, list[str]] | None = None
        self._ids: dict[uuid.UUID, str] = {}
        self._loads: list[set[str]] = []  # for each question on its way, what was forgotten meanwhile

    async def get(self, name: str) -> Topic | None:
        """The topic, or None where there is none.

        Raises:
            StorageUnavailable: Redis is gone and nothing fresh is cached.
        """
        cached = self._cache.get(name)
        if cached is not None and time.monotonic() - cached[0] < self._max_age:
            return cached[1]
        return (await self._load([name]))[0]

    async def anew(self, topic: Topic) -> Topic | None:
        """The topic as Redis has it now, whatever is cached; None where it is gone, or another one has its name.

        Raises:
            StorageUnavailable: Redis is gone.
        """
        (now,) = await self._load([topic.name])
        return now if now is not None and now.id == topic.id else None

    async def by_id(self, topic_id: uuid.UUID) -> Topic | None:
        """The topic with this id, or None."""
        name = self._ids.get(topic_id)
        if name is None:
            found = await self._link.pipe.call("HGET", self._keys.topic_ids, str(topic_id))
            if found is None:
                return None
            name = found.decode()
        topic = await self.get(name)
        return topic if topic is not None and topic.id == topic_id else None

    async def all(self) -> list[Topic]:
        """Every topic, by name."""
        now = time.monotonic()
        known = self._names
        if known is None or now - known[0] >= self._max_age:
            names = sorted(name.decode() for name in await self._link.pipe.call("SMEMBERS", self._keys.topics))
            known = self._names = (now, names)
            await self._load(names)
        # `forget` may have dropped self._names meanwhile: a topic was made or deleted while this one waited.
        return [topic for name in known[1] if (topic := await self.get(name)) is not None]

    async def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        """Makes a topic; goes on to its end even if the caller is cancelled, since others would wait for it.

        Raises:
            TopicExists: it is there already, or another broker made it at this moment.
        """
        return await asyncio.shield(self._create(name, partitions, configs))

    async def _create(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        values = {**self._defaults, **configs}
        now = now_ms()
        fields: list[str | int] = ["id", str(uuid.uuid4()), "name", name, "partitions", partitions, "created", now]
        for config in CONFIGS.values():
            fields += [config.field, _TO_HASH.get(values[config.name], values[config.name])]
        while not await self._link.pipe.call("EVAL", _CREATE_HASH, 1, self._keys.topic(name), *fields):
            await self._others_creation(name)
        await self._publish(name, str(fields[1]))
        self.forget(name)
        topic = await self.get(name)
        assert topic is not None
        return topic

    async def _publish(self, name: str, topic_id: str) -> None:
        await self._link.pipe.call("HSET", self._keys.topic_ids, topic_id, name)
        await self._link.pipe.call("SADD", self._keys.topics, name)

    async def _others_creation(self, name: str) -> None:
        """The hash is there already: TopicExists if the topic is or is just being made, else the remains are purged."""
        if await self._link.pipe.call("SISMEMBER", self._keys.topics, name):
            raise TopicExists(f"Topic '{name}' already exists.")
        created = await self._link.pipe.call("HGET", self._keys.topic(name), "created")
        if created is None or now_ms() - int(created) > _ABANDONED_MS:
            await self._purge(name)
        else:
            await asyncio.sleep(0.02)

    async def alter(self, topic: Topic, configs: Mapping[str, str | None]) -> None:
        """Changes configs; None stands for the broker's default. Other brokers see it when their cache is too old.

        Raises:
            UnknownTopicOrPartition: the topic is gone, or another one has its name.
        """
        fields = []
        for name, value in configs.items():
            fields += [CONFIGS[name].field, "" if value is None else _TO_HASH.get(value, value)]
        await self._change(_ALTER, topic, *fields)

    async def grow(self, topic: Topic, partitions: int) -> bool:
        """Gives it that many partitions; False where somebody has given it as many meanwhile. Raises as `alter`."""
        return await self._change(_GROW, topic, partitions) == 1

    async def _change(self, script: str, topic: Topic, *args: str | int) -> int:
        try:
            changed: int = await self._link.pipe.call(
                "EVAL", script, 1, self._keys.topic(topic.name), str(topic.id), *args
            )
        finally:  # it is done even if the client that asked is gone
            self.forget(topic.name)
        if not changed:
            raise UnknownTopicOrPartition(f"topic {topic.name} was deleted")
        return changed

    async def delete(self, topic: Topic) -> None:
        """Deletes a topic with its records, commits and producer states; goes on to its end like `create`."""
        await asyncio.shield(self._delete(topic))

    async def _delete(self, topic: Topic) -> None:
        await self._link.pipe.call("SREM", self._keys.topics, topic.name)
        await self._purge(topic.name)
        self.forget(topic.name)

    async def _purge(self, name: str) -> None:
        topic_id, partitions = await self._link.pipe.call("HMGET", self._keys.topic(name), "id", "partitions")
        streams = [self._keys.stream(name, partition) for partition in range(int(partitions or 0))]
        keys = [*streams, *map(self._keys.producers, streams), *await self._scan(self._keys.commits(name))]
        keys.append(self._keys.archive(name))
        await self._link.pipe.calls([("UNLINK", key) for key in keys])  # one key each: a cluster has slots
        if topic_id is not None:
            await self._link.pipe.call("HDEL", self._keys.topic_ids, topic_id)
        await self._link.pipe.call("DEL", self._keys.topic(name))

    async def _scan(self, pattern: bytes) -> list[bytes]:
        found, cursor = [], b"0"
        while True:
            cursor, keys = await self._link.pipe.call("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
            found += keys
            if cursor == b"0":
                return found

    async def note(self, topic: Topic, field_name: str, value: str | int) -> None:
        """Writes one field that Ketch itself keeps in the hash of a topic that exists."""
        await self._link.pipe.call("EVAL", NOTE, 1, self._keys.topic(topic.name), str(topic.id), field_name, value)
        self.forget(topic.name)

    def forget(self, name: str) -> None:
        """Drops what is cached of a topic, so that the next question goes to Redis."""
        self._cache.pop(name, None)
        self._names = None
        for forgotten in self._loads:
            forgotten.add(name)

    async def _load(self, names: list[str]) -> list[Topic | None]:
        forgotten = set[str]()
        self._loads.append(forgotten)
        try:
            replies = await self._link.pipe.calls(lookups(self._keys, names))
        finally:
            self._loads = [each for each in self._loads if each is not forgotten]
        now = time.monotonic()
        if len(self._cache) > _CACHE_MAX:
            self._cache.clear()
        topics = read_lookups(names, replies, self._keys, self._defaults)
        for name, topic in zip(names, topics, strict=True):
            if name not in forgotten:  # else it may say what was before a change of our own
                self._cache[name] = (now, topic)
            if topic is not None:
                self._ids[topic.id] = name
        return topics
