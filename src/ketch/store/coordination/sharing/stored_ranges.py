"""Share groups in the batch layout: the ranges of offsets that are in flight, in a hash beside the partition's stream.

The hash `{ks}:shares:{<stream>}` has the share groups of one partition. Fields of a group:

- `:<group>` is `<version> <next>`: a number that rises with each write, and the first offset that was never delivered.
  The first version is the time (ms). So a group that was removed and made again has no version that it had before.
- `<first>:<group>` is `<last> <deliveries> <until> <member>`, a range of offsets in flight; until when the member may
  hold it (ms, by Redis's clock), both 0 and empty where it is available again.

Every change is written before anybody is answered, and only where the version is the one that was read: so two brokers
never hand out the same record, and what one has handed out the next one knows. Only ranges that have changed are
written. This module knows the hash; what ranges do is `log.sharing.in_flight`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ketch.errors import RedisError
from ketch.redis.question import Question, Word, ask, call, calls, command
from ketch.store import scripts


class StoredRange(NamedTuple):
    """One range, see above."""

    first: int
    last: int
    deliveries: int
    until: int
    member: str


class Saved(NamedTuple):
    """What has been written.

    Attributes:
        now: Redis's clock, ms.
        version: that the group has by now.
    """

    now: int
    version: int


class Stored(NamedTuple):
    """What is kept of a group on a partition.

    Attributes:
        now: Redis's clock, ms.
        version: 0 where nothing is kept.
        next: the first offset that was never delivered.
    """

    now: int
    version: int
    next: int
    ranges: list[StoredRange]


def load(shares: bytes, group: str) -> Question[Stored]:
    """What is kept of a group.

    Raises:
        RedisError: another client has written what is no such thing.
    """
    now, words = yield from ask(scripts.share_load(shares, group))
    version = following = 0
    ranges = []
    try:
        for at, value in zip(words[::2], words[1::2], strict=True):
            if at:
                last, deliveries, until, member = value.split(b" ", 3)
                ranges.append(StoredRange(int(at), int(last), int(deliveries), int(until), member.decode()))
            else:
                version, following = map(int, value.split())
    except ValueError as error:
        raise RedisError(f"share group {group} in {shares.decode()} cannot be read: {error}") from None
    return Stored(now, version, following, sorted(ranges))


def start(shares: bytes, group: str) -> Question[int | None]:
    """The first offset that is not settled; None where nothing is kept. No script: who may only read asks this."""
    words = yield from call(shares, "HGETALL", shares)
    firsts, following = [], None
    for at, value in zip(words[::2], words[1::2], strict=True):
        first, _, of = at.partition(b":")
        if of == group.encode() and first:
            firsts.append(int(first))
        elif of == group.encode():
            following = int(value.split()[1])
    return min(firsts, default=following)


def version(shares: bytes, group: str) -> Question[int]:
    """The version of what is kept of a group; 0 where nothing is."""
    head: bytes | None = yield from call(shares, "HGET", shares, f":{group}")
    return int(head.split()[0]) if head else 0


def save(
    shares: bytes, group: str, version: int, following: int, gone: Sequence[int], ranges: Sequence[StoredRange]
) -> Question[Saved | None]:
    """Writes what has changed since `version`; None where others have changed it since.

    Args:
        following: the first offset that was never delivered.
        gone: the first offsets of ranges that are there no more.
        ranges: that have come, or changed.
    """
    words: list[Word] = [version, following, len(gone), *gone]
    for each in ranges:
        words += [each.first, f"{each.last} {each.deliveries} {each.until} {each.member}"]
    saved = Saved(*(yield from ask(scripts.share_save(shares, group, *words))))
    return saved if saved.version else None


def move(shares: bytes, group: str, offset: int) -> Question[None]:
    """Has the group begin at an offset, with nothing in flight."""
    while True:
        stored = yield from load(shares, group)
        gone = [each.first for each in stored.ranges]
        if (yield from save(shares, group, stored.version, offset, gone, ())) is not None:
            return


def remove(of: Sequence[bytes], group: str) -> Question[None]:
    """Removes what is kept of a group in each of these hashes."""
    found = yield from calls([scripts.share_load(shares, group) for shares in of])
    gone = []
    for shares, (_, words) in zip(of, found, strict=True):
        if words:
            gone.append(command(shares, "HDEL", shares, *(at + b":" + group.encode() for at in words[::2])))
    yield from calls(gone)
