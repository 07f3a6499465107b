"""Native consumer groups on a partition's stream: commands and scripts, and what their replies say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ketch.store.offsets import OffsetCodec
from ketch.store.pipe import pack

# KEYS stream. ARGV group, first id, last id. Acknowledges what is pending between the two; returns what is left.
ACKNOWLEDGE = """
repeat
 local p=redis.call('XPENDING',KEYS[1],ARGV[1],ARGV[2],ARGV[3],1000)
 local ids={}
 for i=1,#p do ids[i]=p[i][1] end
 if #ids>0 then redis.call('XACK',KEYS[1],ARGV[1],unpack(ids)) end
until #p<1000
return redis.call('XPENDING',KEYS[1],ARGV[1])[1]"""

# KEYS stream. ARGV first, last, most. {how many entries there are in a range, up to `most`; the id of the last}.
COUNT = """
local e=redis.call('XRANGE',KEYS[1],ARGV[1],ARGV[2],'COUNT',ARGV[3])
return {#e,#e>0 and e[#e][1] or ''}"""


@dataclass(frozen=True, slots=True)
class NativeGroup:
    """One row of XINFO GROUPS."""

    name: str
    consumers: int
    pending: int
    last_delivered: tuple[int, int]
    entries_read: int | None  # entries ever added up to last_delivered; None where Redis cannot tell, as before 7
    lag: int | None  # entries behind last_delivered; None likewise


def parse_groups(reply: list[Any]) -> dict[str, NativeGroup]:
    """XINFO GROUPS's reply by group name."""
    groups = {}
    for row in reply:
        fields = row if isinstance(row, dict) else dict(zip(row[::2], row[1::2], strict=True))
        name = fields[b"name"].decode(errors="replace")
        groups[name] = NativeGroup(
            name,
            fields[b"consumers"],
            fields[b"pending"],
            OffsetCodec.parse_id(fields[b"last-delivered-id"]),
            fields.get(b"entries-read"),
            fields.get(b"lag"),
        )
    return groups


def read_command(stream: bytes, group: str, consumer: str, count: int) -> bytes:
    """XREADGROUP of what was never delivered; it becomes pending."""
    return pack("XREADGROUP", "GROUP", group, consumer, "COUNT", count, "STREAMS", stream, ">")


def entries_of(reply: bytes, stream: bytes) -> memoryview | None:
    """XREADGROUP's reply cut down to the array of entries that XRANGE would have given; None if there are none.

    Raises:
        ValueError: an error reply, or one of another shape.
    """
    if reply.startswith((b"*-1", b"$-1", b"_")):
        return None
    prefix = b"*1\r\n*2\r\n$%d\r\n%s\r\n" % (len(stream), stream)
    if not reply.startswith(prefix):
        raise ValueError(reply[:200].decode(errors="replace"))
    return memoryview(reply)[len(prefix) :]


def first_id(entries: bytes | memoryview) -> bytes:
    """The id of the first entry of a non-empty array of entries, `*N *2 $len id ...`; b"" for an empty one."""
    head = bytes(entries[:96]).split(b"\r\n", 4)
    return head[3] if len(head) > 3 and head[0] != b"*0" else b""


def entry_count(entries: bytes | memoryview) -> int:
    """How many entries the array holds."""
    head = bytes(entries[:24])
    return int(head[1 : head.index(b"\r")])
