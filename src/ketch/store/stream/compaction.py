"""Questions of compaction: how far a partition was compacted, who compacts it, and the swap at the end.

A compaction copies what it keeps into a stream of its own, `{ks}:compacting:{stream}:<term>`, which then takes the
place of the partition's stream in one step (swap_compacted.lua), as the segments that Kafka's cleaner has written take
the place of the old ones. Until then nothing of the partition has changed, and a broker or Redis that dies leaves
nothing but that copy, which expires.

`{ks}:compaction:{stream}` is a hash: who compacts the partition (`holder`, `until`, `term`) and what the last
compaction has found (`State`). `log.upkeep.compaction` decides what is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ketch.redis.question import Command, Question, Word, ask, calls, keyed
from ketch.redis.resp import pack
from ketch.store import scripts
from ketch.store.layouts.layout import Thinned
from ketch.store.stream import ranges
from ketch.store.stream.ranges import PartitionStream
from ketch.store.xinfo import StreamInfo

LEASE_MS = 10_000  # how long a broker that is silent keeps others from compacting the partition
_COPY_MS = 600_000  # how long a copy that nobody goes on with stays
_HORIZONS = 100  # times that are kept of when compactions passed an offset first


@dataclass(frozen=True, slots=True)
class State:
    """What is known of a partition's compaction.

    Attributes:
        cleaned: the offset below which the newest record of each key is the only one.
        entries: how many there were below it.
        removed: `StreamInfo.removed` then.
        first, start: the id of the stream's first entry then, and where the log started before compaction.
        horizons: (offset, time in ms), rising: when a compaction has first passed the records below an offset.
    """

    cleaned: int = 0
    entries: int = 0
    removed: int = 0
    first: bytes = b""
    start: int = 0
    horizons: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, fields: Mapping[bytes, bytes]) -> State:
        def number(name: bytes) -> int:
            text = fields.get(name, b"0")
            return int(text) if text.isdigit() else 0

        return cls(
            number(b"cleaned"),
            number(b"entries"),
            number(b"removed"),
            fields.get(b"first", b""),
            number(b"start"),
            tuple((offset, time) for offset, time in json.loads(fields.get(b"horizons", b"[]"))),
        )

    @property
    def fields(self) -> tuple[Word, ...]:
        return (
            "cleaned", self.cleaned, "entries", self.entries, "removed", self.removed, "first", self.first,
            "start", self.start, "horizons", json.dumps(self.horizons),
        )  # fmt: skip

    def dirty(self, info: StreamInfo) -> int:
        """How many of the entries have come since."""
        trimmed = max(0, (info.removed or 0) - self.removed)
        return max(0, info.length - max(0, self.entries - trimmed))

    def tombstones_below(self, before: int) -> int:
        """The offset below which a compaction has passed all records by `before`, ms."""
        return max((offset for offset, time in self.horizons if time <= before), default=0)

    def passed(self, cleaned: int, now: int) -> tuple[tuple[int, int], ...]:
        """The horizons when a compaction up to `cleaned` has ended."""
        horizons = [*self.horizons, (cleaned, now)]
        while len(horizons) > _HORIZONS:  # two that are close become one, by the later time: tombstones may stay longer
            gaps = [after[1] - before[1] for before, after in pairwise(horizons)]
            del horizons[gaps.index(min(gaps))]
        return tuple(horizons)


@dataclass(frozen=True, slots=True)
class Copy:
    """The keys of one compaction."""

    stream: PartitionStream
    state: bytes
    key: bytes
    term: int


def look(stream: PartitionStream, state: bytes) -> Question[tuple[State, StreamInfo]]:
    """What is known of a partition's compaction, and its stream as it is."""
    (fields,) = yield from calls([keyed("HGETALL", state)])
    info = yield from ranges.info(stream)
    return State.of(dict(zip(fields[::2], fields[1::2], strict=True))), info


def start(state: bytes, first: bytes) -> Question[int | None]:
    """Where the log started before compaction removed entries before `first`; None where the log starts there."""
    (found,) = yield from starts([(state, first)])
    return found


def starts(of: Sequence[tuple[bytes, bytes]]) -> Question[list[int | None]]:
    """As `start`, of many partitions in one round trip."""
    replies = yield from calls([keyed("HMGET", state, "first", "start") for state, _ in of])
    pairs = zip(replies, of, strict=True)
    return [int(begin) if found == first and begin is not None else None for (found, begin), (_, first) in pairs]


def begin(state: bytes, session: str) -> Question[int]:
    """Makes a session the one that compacts a partition: the term; 0 where another one does."""
    term: int = yield from ask(scripts.begin_compaction(state, session, LEASE_MS))
    return term


def hold(copy: Copy, lease_ms: int = LEASE_MS, found: State | None = None) -> Question[bool]:
    """Keeps the lease, or gives it back (0), and stores what was found; False where another session has taken it."""
    fields = found.fields if found else ("term", copy.term)
    held: int = yield from ask(scripts.hold_compaction(copy.state, copy.term, lease_ms, *fields))
    return held == 1


def write(copy: Copy, thinned: Thinned) -> Command | None:
    """Adds to the copy what is kept of a reply."""
    if not thinned.commands:
        return None
    expire = pack("PEXPIRE", copy.key, _COPY_MS)
    return Command(copy.key, b"".join((*thinned.commands, expire)), len(thinned.commands) + 1)


def carry(copy: Copy, group: bytes, consumer: bytes, cursor: bytes, most: int) -> Question[bytes]:
    """Carries some of what is pending for a consumer to the copy: from where to go on, b"" where nothing is left.

    Args:
        cursor: b"-" at the beginning.
    """
    words = (group, consumer, cursor, most, _COPY_MS)
    left: bytes = yield from ask(scripts.carry_pending(copy.stream.key, copy.key, _carried(copy.key), *words))
    return left


def swap(copy: Copy, total: Thinned, most: int, most_pending: int, found: State) -> Question[str]:
    """Puts the copy in the stream's place: "done", or why not, see swap_compacted.lua.

    Args:
        most: how many entries may be copied in this step.
        most_pending: how many deliveries may be carried in it.
    """
    stream, carried, replaced = copy.stream.key, _carried(copy.key), copy.key + b":replaced"
    gone = (total.first_gone or b"0-0", total.last_gone or b"0-0")
    words = (copy.term, total.seen, total.last, total.kept, *gone, most, most_pending, *found.fields, "until", 0)
    answer: bytes = yield from ask(scripts.swap_compacted(copy.state, stream, copy.key, carried, replaced, *words))
    return answer.decode()


def drop(*copies: bytes) -> Question[None]:
    """Deletes copies that nobody goes on with."""
    yield from calls([keyed("UNLINK", copy, _carried(copy)) for copy in copies])


def _carried(copy: bytes) -> bytes:
    return copy + b":carried"
