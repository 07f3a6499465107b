"""What XINFO says of one partition's stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import hiredis

from ketch.redis.resp import checked, pack
from ketch.store.offsets import ZERO, EntryId, OffsetNumbering


@dataclass(slots=True)  # frozen, it takes twice as long to make one; it is not changed all the same
class StreamInfo:
    """What XINFO STREAM says that offsets depend on. A stream that does not exist is an empty one."""

    length: int = 0
    last: EntryId = ZERO  # last-generated-id: survives trimming
    first: EntryId | None = None  # the first entry's id; None when empty
    added: int | None = None  # entries-added; None before Redis 7
    first_batch: bytes = b""  # the head of the batch in the first entry, where it holds one
    entry_bytes: int = 0  # the larger of the first and the last entry's payload, a first guess at the size of one
    lineage: object = field(default_factory=object, compare=False)  # the same while nothing but our appends changed it

    @property
    def exists(self) -> bool:
        """Whether there is a stream that an entry was ever added to; it may be empty by now."""
        return self.last != ZERO

    @property
    def removed(self) -> int | None:
        """How many entries were ever trimmed or deleted; None before Redis 7."""
        return None if self.added is None else self.added - self.length

    def appended(self, last: EntryId, entries: int) -> StreamInfo:
        """What it says when `entries` more have been appended, the last one with id `last`."""
        added = None if self.added is None else self.added + entries
        return StreamInfo(
            self.length + entries, last, self.first, added, self.first_batch, self.entry_bytes, self.lineage
        )


def info_command(stream: bytes) -> bytes:
    return pack("XINFO", "STREAM", stream)


def parse_info(reply: Any) -> StreamInfo:
    """StreamInfo from the parsed reply (RESP2 list or RESP3 map) of XINFO STREAM, or of info.lua.

    Raises:
        RedisError: an error other than "no such key", e.g. the key holds another type.
    """
    if isinstance(reply, hiredis.ReplyError) and "no such key" in str(reply):
        return StreamInfo()
    checked(reply)
    fields = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
    ends = [_glance(entry) for entry in (fields[b"first-entry"], fields[b"last-entry"]) if entry]
    return StreamInfo(
        length=fields[b"length"],
        last=OffsetNumbering.parse_id(fields[b"last-generated-id"]),
        first=OffsetNumbering.parse_id(ends[0][0]) if ends else None,
        added=fields.get(b"entries-added"),
        first_batch=ends[0][2] if ends else b"",
        entry_bytes=max((size for _, size, _ in ends), default=0),
    )


def _glance(entry: list[Any]) -> tuple[bytes, int, bytes]:
    """An entry's id, the bytes in it, and its field `batch` or the beginning of that."""
    if len(entry) == 3:
        return entry[0], entry[1], entry[2]
    entry_id, words = entry
    batch = next((value for name, value in zip(words[::2], words[1::2], strict=True) if name == b"batch"), b"")
    return entry_id, sum(map(len, words)), batch
