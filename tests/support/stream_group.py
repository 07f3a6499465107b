"""One Redis stream with consumer groups, in Python: it executes the commands of `store.coordination.native`.

It follows Redis's documentation of XADD, XTRIM, XRANGE, XREADGROUP, XACK, XPENDING, XGROUP and XINFO, as plainly as can
be. `ModelLink` is the driver of questions that has it as its Redis. No script is run: each is written again here, in
terms of these commands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import hiredis

from ketch.redis.question import Command, Question
from ketch.store.lua import load
from ketch.store.offsets import ZERO, EntryId, OffsetNumbering
from tests.support.replies import resp

T = TypeVar("T")

parse_id, format_id = OffsetNumbering.parse_id, OffsetNumbering.format_id
_LARGEST = (2**64 - 1, 2**64 - 1)
_NO_KEY = Exception("ERR no such key")
_NEEDS_KEY = Exception("ERR The XGROUP subcommand requires the key to exist.")
_NO_GROUP = Exception("NOGROUP No such consumer group")


@dataclass
class Group:
    """A consumer group.

    Attributes:
        last: the last id that was delivered.
        read: entries ever added up to that one; None where that is not known.
        pending: the consumer of each delivery that is not acknowledged.
    """

    last: EntryId
    read: int | None
    pending: dict[EntryId, bytes] = field(default_factory=dict)
    consumers: set[bytes] = field(default_factory=set)


class Stream:
    """The stream and its groups; there is no stream before the first entry.

    Attributes:
        entries: fields by id.
        added: how many there ever were.
    """

    def __init__(self) -> None:
        self.entries: dict[EntryId, list[bytes]] = {}
        self.added = 0
        self.groups: dict[bytes, Group] = {}
        self._scripts: dict[bytes, Callable[..., Any]] = {
            load("acknowledge"): self._acknowledge,
            load("count"): self._count,
            load("position"): self._position,
        }
        self._queued: list[list[bytes]] | None = None

    # -- what a test does itself

    def add(self, at: EntryId, fields: list[bytes]) -> None:
        """XADD."""
        assert at > max(self.entries, default=ZERO)
        self.entries[at] = fields
        self.added += 1

    def trim(self, entries: int) -> None:
        """XTRIM: the first ones go. What is pending stays pending."""
        for at in sorted(self.entries)[:entries]:
            del self.entries[at]

    # -- commands

    def execute(self, payload: bytes) -> bytes:
        """The reply to the last of the commands."""
        reader, reply = hiredis.Reader(), b""
        reader.feed(payload)
        while (words := reader.gets()) is not False:
            reply = resp(self._command(words))
        return reply

    def _command(self, words: list[bytes]) -> object:
        name = words[0]
        if name == b"MULTI":
            self._queued = []
            return "OK"
        if name == b"EXEC":
            queued, self._queued = self._queued or [], None
            return [self._command(each) for each in queued]
        if self._queued is not None:
            self._queued.append(words)
            return "QUEUED"
        if name == b"EVAL":
            return self._scripts[words[1]](*words[4:])
        if name in (b"XGROUP", b"XINFO"):
            return getattr(self, f"_{name.decode().lower()}_{words[1].decode().lower()}")(*words[3:])
        return getattr(self, f"_{name.decode().lower()}")(*words[1:])

    def _within(self, ids: Any, first: bytes, last: bytes) -> list[EntryId]:
        low = ZERO if first == b"-" else parse_id(first.lstrip(b"("))
        high = _LARGEST if last == b"+" else parse_id(last.lstrip(b"("))
        return [
            at
            for at in sorted(ids)
            if low <= at <= high and not (first[:1] == b"(" and at == low) and not (last[:1] == b"(" and at == high)
        ]

    def _entry(self, at: EntryId) -> list[object]:
        return [format_id(*at), self.entries[at]]

    def _xrange(self, _key: bytes, first: bytes, last: bytes, _count: bytes, count: bytes) -> object:
        return [self._entry(at) for at in self._within(self.entries, first, last)[: int(count)]]

    def _xreadgroup(self, *words: bytes) -> object:
        _, name, consumer, _, count, _, key, what = words
        assert what == b">"
        group = self.groups.get(name)
        if group is None:
            return _NO_GROUP
        group.consumers.add(consumer)
        found = [at for at in sorted(self.entries) if at > group.last][: int(count)]
        if not found:
            return None
        group.last = found[-1]
        group.pending |= dict.fromkeys(found, consumer)
        if group.read is not None:
            group.read += len(found)
        return [[key, [self._entry(at) for at in found]]]

    def _xgroup_create(self, name: bytes, last: bytes, *words: bytes) -> object:
        if not self.added:
            return _NEEDS_KEY
        if name in self.groups:
            return Exception("BUSYGROUP Consumer Group name already exists")
        self.groups[name] = Group(parse_id(last), int(words[1]) if words else None)
        return "OK"

    def _xgroup_setid(self, name: bytes, last: bytes, *words: bytes) -> object:
        if name not in self.groups:
            return _NO_GROUP if self.added else _NEEDS_KEY
        self.groups[name].last, self.groups[name].read = parse_id(last), int(words[1]) if words else None
        return "OK"

    def _xgroup_delconsumer(self, name: bytes, consumer: bytes) -> object:
        group = self.groups.get(name)
        if group is None:
            return _NO_GROUP if self.added else _NEEDS_KEY
        kept = {at: owner for at, owner in group.pending.items() if owner != consumer}
        gone, group.pending = len(group.pending) - len(kept), kept
        group.consumers.discard(consumer)
        return gone

    def _xinfo_groups(self) -> object:
        if not self.added:
            return _NO_KEY
        return [
            [
                b"name", name, b"consumers", len(group.consumers), b"pending", len(group.pending),
                b"last-delivered-id", format_id(*group.last), b"entries-read", group.read, b"lag", None,
            ]
            for name, group in self.groups.items()
        ]  # fmt: skip

    # -- scripts

    def _acknowledge(self, name: bytes, first: bytes, last: bytes) -> object:
        """acknowledge.lua: XPENDING of the range, XACK of what it shows."""
        group = self.groups.get(name)
        if group is None:
            return _NO_GROUP
        for at in self._within(group.pending, first, last):
            del group.pending[at]
        return len(group.pending)

    def _count(self, first: bytes, last: bytes, most: bytes) -> object:
        found = self._within(self.entries, first, last)[: int(most)]
        return [len(found), format_id(*found[-1]) if found else b""]

    def _position(self, name: bytes) -> object:
        if not self.added:
            return _NO_KEY
        return format_id(*self.groups[name].last) if name in self.groups else None


class ModelLink:
    """The driver of questions to a `Stream`, with the methods of `redis.link.Link` that ask."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def _reply(self, command: Command) -> bytes:
        return self._stream.execute(b"".join(command.pieces))

    async def ask(self, question: Question[T]) -> T:
        try:
            commands = next(question)
            while True:
                replies = [self._reply(command) for command in commands]
                await asyncio.sleep(0)
                commands = question.send(replies)
        except StopIteration as stop:
            answer: T = stop.value
            return answer

    def send(self, command: Command) -> asyncio.Future[bytes]:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        future.set_result(self._reply(command))
        return future
