"""What a native group is made to do as members read, seek, commit and leave, against a model of a stream. No server.

`Expected` says in plain sets what the group must show afterwards: what is pending is what was delivered, not taken back
by a seek, and not committed.
"""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

import hiredis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ketch.configs.settings import Settings
from ketch.configs.topic_checks import defaults
from ketch.log.live import LiveStream
from ketch.log.log import Log
from ketch.log.native_position import NativePosition
from ketch.redis.link import Link
from ketch.redis.links import links
from ketch.redis.url import RedisAddress
from ketch.store.offsets import ZERO, EntryId, OffsetNumbering
from ketch.store.topics.topic import Topic
from ketch.store.xinfo import StreamInfo
from tests.support.batches import batch, records
from tests.support.stream_group import Group, ModelLink, Stream

T = TypeVar("T")
SHARED = Log(Settings.model_construct(), links(RedisAddress.parse("redis://localhost:1"), 1))._shared  # never connected
DEFAULTS = defaults(Settings.model_construct())
GROUP = b"g"
MEMBERS = st.sampled_from(["m1", "m2"])


class Expected:
    """What the native group must show.

    Attributes:
        pending: the member of each entry, by the offset of its last record.
        position: the offset after the last entry that was delivered; None: there is no group yet.
        reading: a member reads through it.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.pending: dict[int, str] = {}
        self.position: int | None = None
        self.reading = False

    def seek(self, offset: int) -> None:
        """What lies behind it is delivered again."""
        if offset != self.position:
            self.pending = {at: member for at, member in self.pending.items() if at < offset}
        self.position, self.reading = offset, True

    @property
    def room(self) -> int:
        return max(0, self.most - len(self.pending))

    def commit(self, offset: int, elsewhere: bool) -> None:
        reader = self.reading or elsewhere  # whose position may be ahead
        if self.position is None or self.position < offset or (self.position != offset and not reader):
            if self.position is not None and self.position > offset:
                self.pending = {}
            self.position = offset
        self.pending = {at: member for at, member in self.pending.items() if at >= offset}

    def leave(self, member: str) -> None:
        self.reading = False
        self.pending = {at: owner for at, owner in self.pending.items() if owner != member}


class Groups(RuleBasedStateMachine):
    """One partition, one group of two members, one broker."""

    @initialize(
        layout=st.sampled_from(["record", "batch"]),
        dense=st.booleans(),
        window=st.sampled_from([(0, False), (4, True), (2, False), (2, False), (4, False), (100, False)]),
        counts=st.booleans(),
    )
    def create(self, layout: str, dense: bool, window: tuple[int, bool], counts: bool) -> None:
        most, compacts = window
        policy = "compact" if compacts else "delete"
        configs = {**DEFAULTS, "storage.layout": layout, "cleanup.policy": policy}
        self.topic = Topic("t", uuid.UUID(int=1), 1, 1, OffsetNumbering(10, dense), configs)
        self.stream, self.loop, self.counts = Stream(), asyncio.new_event_loop(), counts
        link = ModelLink(self.stream)
        self.live = LiveStream(self.topic, 0, dataclasses.replace(SHARED, reads=cast(Link, link)))
        self.position = NativePosition(GROUP.decode(), self.live, cast(Link, link), most)
        self.expected = Expected(0 if compacts else most)
        self.end = self.topic.first_offset
        self.added: list[int] = []  # offsets of the last records of all entries that ever were
        self.disturbed = self.overtaken = False  # by another client; by a trim

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        async def settled() -> T:
            answer = await work
            for _ in range(3):  # what was sent without waiting is answered
                await asyncio.sleep(0)
            return answer

        return self.loop.run_until_complete(settled())

    def _id(self, offset: int) -> EntryId:
        return self.topic.numbering.to_id(offset)

    def _last(self, at: EntryId) -> int:
        return self.topic.numbering.to_offset(*at)

    @property
    def _info(self) -> StreamInfo:
        held = sorted(self.stream.entries)
        last = self._id(self.added[-1]) if self.added else ZERO
        return StreamInfo(len(held), last, held[0] if held else None, self.stream.added if self.counts else None)

    @property
    def _native(self) -> Group | None:
        return self.stream.groups.get(GROUP)

    # -- what happens

    @rule(gap=st.integers(0, 3), size=st.integers(1, 4))
    def append(self, gap: int, size: int) -> None:
        base = self.end + (0 if self.topic.numbering.dense else gap)
        if self.topic.layout.entry_is_record:
            for offset in range(base, base + size):
                self.stream.add(self._id(offset), [b"value", b"v"])
                self.added.append(offset)
        else:
            self.stream.add(self._id(base + size - 1), [b"batch", batch(records([b"v"] * size))])
            self.added.append(base + size - 1)
        self.end = base + size

    @precondition(lambda self: self.added)
    @rule(data=st.data(), count=st.integers(1, 6), member=MEMBERS)
    def read_on(self, data: st.DataObject, count: int, member: str) -> None:
        """From where the last read has ended."""
        at = self.expected.position
        self._read(data, self.topic.first_offset if at is None else at, count, member)

    @precondition(lambda self: self.added)
    @rule(data=st.data(), count=st.integers(1, 6), member=MEMBERS)
    def seek(self, data: st.DataObject, count: int, member: str) -> None:
        ends = [at + 1 for at in self.added]
        offset = data.draw(st.sampled_from([self.topic.first_offset, *self.added, *ends]), "offset")
        self._read(data, offset, count, member)

    def _read(self, data: st.DataObject, offset: int, count: int, member: str) -> None:
        held = [self._last(at) for at in sorted(self.stream.entries)]
        follows = [at for at in held if at >= offset]
        reply = self._run(self.position.read(offset, count, member, self._info))
        room, tracked = self.expected.room, reply is not None
        if not self.disturbed:
            self.expected.seek(offset)
            room = self.expected.room
            assert tracked == (room > 0)
        if reply is None:
            found = follows[:count]
        else:
            found = self._offsets(bytes(reply))
            assert found == follows[: len(found)], "the records are those from the offset on"
            assert found or not follows
            if not self.disturbed:
                assert found == follows[: min(count, room)]
        if not found:
            return
        taken = data.draw(st.integers(0 if tracked else 1, len(found)), "taken") if data.draw(st.booleans()) else -1
        self._give(offset, found, found[:taken] if taken >= 0 else found, member if tracked else None)

    def _give(self, offset: int, found: list[int], taken: list[int], member: str | None) -> None:
        """The consumer gets the entries `taken`; `member` is None where they are not tracked."""
        end = taken[-1] + 1 if taken else offset

        async def passed() -> None:
            self.position.passed(end, len(taken), len(taken))

        if member is None:
            self._run(passed())
        else:
            self._run(self.position.delivered(end, len(taken), len(taken), len(taken) == len(found)))
            self.expected.pending |= dict.fromkeys(taken, member)
        self.expected.position = end

    def _offsets(self, reply: bytes) -> list[int]:
        reader = hiredis.Reader()
        reader.feed(reply)
        entries: Any = reader.gets()
        return [self._last(self.topic.numbering.parse_id(at)) for at, _ in entries]

    @precondition(lambda self: self.added)
    @rule(data=st.data(), elsewhere=st.booleans(), tracked=st.sampled_from([True, True, True, False]))
    def commit(self, data: st.DataObject, elsewhere: bool, tracked: bool) -> None:
        offset = data.draw(st.integers(self.topic.first_offset, self.end) | st.sampled_from(self.added), "offset")
        self._run(self.position.commit(offset, self._info, tracked, elsewhere))
        if not tracked:
            self.expected.reading = False
        self.expected.commit(offset, elsewhere)

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        self._run(self.position.leave(member))
        self.expected.leave(member)
        assert self._native is None or member.encode() not in self._native.consumers

    @rule(entries=st.integers(1, 3))
    def trim(self, entries: int) -> None:
        self.stream.trim(entries)
        gone = len(self.added) - len(self.stream.entries)
        self.overtaken |= bool(gone) and self.added[gone - 1] >= (self.expected.position or 0)

    # -- what must hold

    @invariant()
    def the_group_shows_what_was_delivered_and_not_committed(self) -> None:
        native, expected = self._native, self.expected
        if self.disturbed:
            return
        assert (native is None) == (expected.position is None)
        if native is None or expected.position is None:
            return
        assert {self._last(at): owner.decode() for at, owner in native.pending.items()} == expected.pending
        assert len(native.pending) <= expected.most
        assert (self._last(native.last) + 1 if native.last != ZERO else 0) == expected.position
        if not self.overtaken and native.read is not None:
            removed = len(self.added) - len(self.stream.entries)
            read = sum(at < expected.position for at in self.added)
            assert native.read == max(read, removed), "so Redis knows the lag"
        assert native.read is not None or not self.counts or self.overtaken


class GroupsOfOthersToo(Groups):
    """Another client handles the group as well."""

    @precondition(lambda self: self._native is not None)
    @rule(data=st.data(), what=st.sampled_from(["0-0", "end", "destroy", "read"]))
    def another_client(self, data: st.DataObject, what: str) -> None:
        """Reads stay right whatever others do with the group; what is pending is theirs to answer for."""
        self.disturbed = True
        if what == "destroy":
            del self.stream.groups[GROUP]
        elif what == "read":
            self.stream._xreadgroup(b"GROUP", GROUP, b"theirs", b"COUNT", b"2", b"STREAMS", b"s", b">")
        else:
            self.stream.groups[GROUP].last = ZERO if what == "0-0" else self._id(self.end - 1)
        self.read_on(data, 3, "m1")


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=80, stateful_step_count=25)
TestGroupsOfOthersToo = GroupsOfOthersToo.TestCase
TestGroupsOfOthersToo.settings = settings(max_examples=25, stateful_step_count=25)
