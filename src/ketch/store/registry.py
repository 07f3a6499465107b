"""The brokers of one Redis: the hash `{ks}:brokers`, node id -> JSON of host, port, session and when it last spoke.

Times are Redis's own, so that the brokers' clocks need not agree.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from ketch.store.keys import Keyspace
from ketch.store.link import Link

# KEYS brokers. ARGV node id, host, port, session, timeout ms.
# {1, now, HGETALL}; or {0, now, the entry of another broker that has this node id and is alive}. Brokers that have been
# silent for a day are forgotten.
_ANNOUNCE = """
local t=redis.call('TIME')
local now=t[1]*1000+math.floor(t[2]/1000)
local held=redis.call('HGET',KEYS[1],ARGV[1])
if held then
 local h=cjson.decode(held)
 local same=h.session==ARGV[4] or (h.host==ARGV[2] and h.port==tonumber(ARGV[3]))
 if not same and now-h.seen<tonumber(ARGV[5]) then return {0,now,held} end
end
redis.call('HSET',KEYS[1],ARGV[1],cjson.encode({host=ARGV[2],port=tonumber(ARGV[3]),session=ARGV[4],seen=now}))
local all=redis.call('HGETALL',KEYS[1])
for i=2,#all,2 do
 if now-cjson.decode(all[i]).seen>86400000 then redis.call('HDEL',KEYS[1],all[i-1]) end
end
return {1,now,all}"""

# KEYS brokers. ARGV node id, session. A broker takes back only what it said itself.
_WITHDRAW = """
local held=redis.call('HGET',KEYS[1],ARGV[1])
if held and cjson.decode(held).session==ARGV[2] then return redis.call('HDEL',KEYS[1],ARGV[1]) end
return 0"""


@dataclass(frozen=True, slots=True)
class Node:
    """A broker as clients are told of it."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Announced:
    """A broker's entry; `silent` is how long it has not spoken, in ms."""

    node: Node
    session: str
    seen: int
    silent: int


class NodeIdTaken(Exception):
    """Another broker, which is alive, has the node id."""

    def __init__(self, holder: Announced) -> None:
        self.holder = holder


class Registry:
    """Announces this broker and reads who else is there; every method raises StorageUnavailable when Redis is gone.

    Args:
        timeout_ms: a node id is free once its broker has been silent for so long.
    """

    def __init__(self, keys: Keyspace, link: Link, session: str, timeout_ms: int) -> None:
        self._key, self._link, self._session, self._timeout_ms = keys.brokers, link, session, timeout_ms

    async def clear(self) -> None:
        """Nobody is there: for a Redis that has only just been started."""
        await self._link.pipe.call("DEL", self._key)

    async def announce(self, node: Node) -> list[Announced]:
        """This broker is alive; every broker that has said so of late or long ago, this one included.

        Raises:
            NodeIdTaken: by a live broker at another address.
        """
        words = (node.id, node.host, node.port, self._session, self._timeout_ms)
        stored, now, found = await self._link.pipe.call("EVAL", _ANNOUNCE, 1, self._key, *words)
        if not stored:
            raise NodeIdTaken(_read(node.id, found, now))
        return [_read(int(found[n]), found[n + 1], now) for n in range(0, len(found), 2)]

    async def withdraw(self, node_id: int) -> None:
        """This broker is going."""
        await self._link.pipe.call("EVAL", _WITHDRAW, 1, self._key, node_id, self._session)


def _read(node_id: int, entry: bytes, now: int) -> Announced:
    fields = json.loads(entry)
    seen = int(fields["seen"])
    return Announced(Node(node_id, fields["host"], int(fields["port"])), fields["session"], seen, now - seen)
