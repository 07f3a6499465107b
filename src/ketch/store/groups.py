"""Groups and committed offsets in Redis.

`{ks}:groups` names the groups, `{ks}:group:{id}` holds one's membership. A committed offset is the plain string
`{ks}:commit:{stream}:{group}` and nothing else decides where a consumer goes on; what Kafka keeps beside it (leader
epoch, time, metadata) is in the hash `{ks}:offsets:{group}`, field `topic:partition`, and counts only while it speaks
of the same offset.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ketch.store.keys import Keyspace
from ketch.store.link import Link
from ketch.store.pipe import checked, pack, parse

TopicPartition = tuple[str, int]
_Command = tuple[bytes | str | int, ...]
_JOURNAL_MAX = 10_000  # changes of groups; brokers read them every few seconds


@dataclass(frozen=True, slots=True)
class Committed:
    """One committed offset; `time` in ms, 0 where it was set by hand."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    time: int = 0


class GroupStore:
    """Reads and writes groups and commits; every method raises StorageUnavailable when Redis is gone."""

    def __init__(self, keys: Keyspace, link: Link) -> None:
        self._keys, self._link = keys, link

    # -- groups

    async def names(self) -> list[str]:
        """Every group that has members, had them, or has committed."""
        return sorted(name.decode() for name in await self._link.pipe.call("SMEMBERS", self._keys.groups))

    async def load(self, group: str) -> dict[str, str]:
        """The group's fields, see `coordinator.snapshot`; empty where it has never had members."""
        pairs = await self._link.pipe.call("HGETALL", self._keys.group(group))
        return {key.decode(): value.decode() for key, value in zip(pairs[::2], pairs[1::2], strict=True)}

    async def exists(self, group: str) -> bool:
        found: int = await self._link.pipe.call("SISMEMBER", self._keys.groups, group)
        return bool(found)

    async def save(self, group: str, fields: Mapping[str, str]) -> None:
        """Replaces the group's fields as a whole."""
        key = self._keys.group(group)
        flat = [word for pair in fields.items() for word in pair]
        await self._link.pipe.calls(
            [("SADD", self._keys.groups, group), ("MULTI",), ("DEL", key), ("HSET", key, *flat), ("EXEC",)]
        )

    async def journal(self, group: str) -> None:
        """Tells the other brokers that the group is not as it was."""
        await self._link.pipe.call("XADD", self._keys.group_changes, "MAXLEN", "~", _JOURNAL_MAX, "*", "group", group)

    async def journal_end(self) -> bytes:
        """Where the journal of changes ends now; for `changed_since`."""
        last = await self._link.pipe.call("XREVRANGE", self._keys.group_changes, "+", "-", "COUNT", 1)
        return last[0][0] if last else b"0-0"

    async def changed_since(self, end: bytes) -> tuple[list[str], bytes]:
        """The groups that have changed behind `end`, and the new end."""
        entries = await self._link.pipe.call("XRANGE", self._keys.group_changes, b"(" + end, "+")
        names = {fields[1].decode() for _, fields in entries}
        return sorted(names), entries[-1][0] if entries else end

    async def emptied(self, group: str) -> int:
        """When the group lost its last member, ms; 0 where it never had any."""
        return int(await self._link.pipe.call("HGET", self._keys.group(group), "updated") or 0)

    async def delete(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Deletes the group with its commits, and its native groups on these partitions' streams."""
        await self._forget(group, {*partitions, *await self.partitions(group)})
        await self._link.pipe.calls(
            [
                ("DEL", self._keys.offsets(group)),
                ("DEL", self._keys.group(group)),
                ("SREM", self._keys.groups, group),
            ]
        )

    # -- commits

    async def commit(self, group: str, commits: Mapping[TopicPartition, Committed]) -> None:
        """Stores committed offsets."""
        commands: list[_Command] = [("SADD", self._keys.groups, group)]
        for (topic, index), commit in commits.items():
            beside = json.dumps([commit.offset, commit.leader_epoch, commit.time, commit.metadata])
            commands.append(("SET", self._key(group, (topic, index)), commit.offset))
            commands.append(("HSET", self._keys.offsets(group), f"{topic}:{index}", beside))
        await self._link.pipe.calls(commands)

    async def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed]:
        """The committed offsets of those partitions that have one."""
        asked = list(partitions)
        commands: list[_Command] = []
        for topic, index in asked:
            commands.append(("GET", self._key(group, (topic, index))))
            commands.append(("HGET", self._keys.offsets(group), f"{topic}:{index}"))
        replies = await self._link.pipe.calls(commands)
        pairs = zip(asked, replies[::2], replies[1::2], strict=True)
        return {partition: _committed(offset, beside) for partition, offset, beside in pairs if offset is not None}

    async def partitions(self, group: str) -> list[TopicPartition]:
        """Every partition that the group has committed for."""
        found = []
        for name in await self._link.pipe.call("HKEYS", self._keys.offsets(group)):
            topic, _, index = name.decode().rpartition(":")
            found.append((topic, int(index)))
        return sorted(found)

    async def uncommit(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Forgets committed offsets, with the native groups."""
        named = list(partitions)
        await self._forget(group, named)
        await self._link.pipe.call("HDEL", self._keys.offsets(group), *(f"{topic}:{index}" for topic, index in named))

    async def forget_topic(self, topic: str, partitions: int) -> None:
        """A topic is gone: what lies beside every group's commits on it goes, too."""
        fields = [f"{topic}:{index}" for index in range(partitions)]
        names = await self.names()
        await self._link.pipe.calls([("HDEL", self._keys.offsets(name), *fields) for name in names])

    async def _forget(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        pipe = self._link.pipe
        replies = []
        for partition in partitions:
            replies.append(pipe.send(pack("DEL", self._key(group, partition))))
            replies.append(pipe.send(pack("XGROUP", "DESTROY", self._keys.stream(*partition), group)))
        for reply in map(parse, await asyncio.gather(*replies)):
            if not (isinstance(reply, Exception) and "key to exist" in str(reply)):
                checked(reply)

    def _key(self, group: str, partition: TopicPartition) -> bytes:
        return self._keys.commit(self._keys.stream(*partition), group)


def _committed(offset: bytes, beside: bytes | None) -> Committed:
    if beside is not None:
        told, epoch, time, metadata = json.loads(beside)
        if told == int(offset):
            return Committed(told, epoch, metadata, time)
    return Committed(int(offset))  # set by hand since
