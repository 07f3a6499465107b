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

# KEYS stream. ARGV group. Its last delivered id.
_POSITION = """
for _,g in ipairs(redis.call('XINFO','GROUPS',KEYS[1])) do
 local f={}
 for k=1,#g,2 do f[g[k]]=g[k+1] end
 if f.name==ARGV[1] then return f['last-delivered-id'] end
end"""

_MULTI, _EXEC = pack("MULTI"), pack("EXEC")
_HEAD_MAX = 96  # bytes of a reply with an id in them


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


def read_command(stream: bytes, group: str, consumer: str, count: int) -> tuple[bytes, int]:
    """XREADGROUP of what was never delivered, which becomes pending; and behind what that was. The number of replies.

    The group's position says which entries they are. The stream's next entry would say so too, but a batch of a
    megabyte would come twice.
    """
    position = pack("EVAL", _POSITION, 1, stream, group)
    read = pack("XREADGROUP", "GROUP", group, consumer, "COUNT", count, "STREAMS", stream, ">")
    return b"".join((_MULTI, position, read, _EXEC)), 4


def read_reply(reply: bytes, stream: bytes) -> tuple[tuple[int, int], memoryview | None]:
    """The last reply to `read_command`: the id behind which was read, and the array of entries that XRANGE would give.

    There is no array where there are no entries.

    Raises:
        ValueError: an error reply, or one of another shape.
    """
    head = reply[:_HEAD_MAX].split(b"\r\n", 3)
    if len(head) < 4 or head[0] != b"*2" or not head[1].startswith(b"$") or b"-" not in head[2]:
        raise ValueError(reply[:200].decode(errors="replace"))
    last = OffsetCodec.parse_id(head[2])
    at = len(reply[:_HEAD_MAX]) - len(head[3])
    if reply[at : at + 3] in (b"*-1", b"$-1") or reply[at : at + 1] == b"_":
        return last, None
    prefix = b"*1\r\n*2\r\n$%d\r\n%s\r\n" % (len(stream), stream)
    if not reply.startswith(prefix, at):
        raise ValueError(reply[at : at + 200].decode(errors="replace"))
    return last, memoryview(reply)[at + len(prefix) :]


def entry_count(entries: bytes | memoryview) -> int:
    """How many entries the array holds."""
    head = bytes(entries[:24])
    return int(head[1 : head.index(b"\r")])
