"""Looks once at a Redis, over connections of its own on the event loop, for `ketch serve` before it starts and for
`ketch doctor`: at one server, at all nodes of a cluster, or at the master behind sentinels. The checks are in
`views.health`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from ketch.errors import RedisError, StorageUnavailable
from ketch.redis.master import find_master
from ketch.redis.pipe import ask_once
from ketch.redis.question import Question
from ketch.redis.slots import SLOTS
from ketch.redis.topology import Place, Topology, topology
from ketch.redis.url import RedisAddress, spelled
from ketch.store.keys import Keyspace
from ketch.views import health
from ketch.views.health import Check, Facts, Node

_FAILURES = (StorageUnavailable, RedisError, TimeoutError)

_Look = Callable[[RedisAddress], Awaitable[Facts | str]]


async def examine(
    address: RedisAddress,
    timeout: float,
    embedded: bool = False,
    append: str = "auto",
    keyspace: str = "korvet",
    thorough: bool = False,
) -> list[Check]:
    """All checks, worst cases included: never raises for what it finds.

    Args:
        timeout: s, for connecting, and again for all questions; for each server.
        embedded, append: see `health.checks`.
        keyspace, thorough: see `rights.look`.
    """
    look = partial(_look, timeout=timeout, facts=partial(health.facts, Keyspace(keyspace), thorough))
    name = address.describe()
    if address.kind == "cluster":
        return await _cluster(address, timeout, look, embedded, append)
    if address.kind == "sentinel":
        try:
            address = await find_master(address, timeout)
        except StorageUnavailable as error:
            return health.unusable(name, str(error).rstrip("."))
        name = f"{spelled(address.host, address.port)}, the master of {name},"
    found = await look(address)
    return health.unusable(name, found) if isinstance(found, str) else health.checks(found, name, embedded, append)


async def _look(address: RedisAddress, timeout: float, facts: Callable[[], Question[Facts]]) -> Facts | str:
    """What one server answers; why it does not, as a phrase."""
    try:
        return await ask_once(address, timeout, facts())
    except _FAILURES as error:
        return _why(error, address, timeout)


def _why(error: Exception, address: RedisAddress, timeout: float) -> str:
    return str(error).removeprefix(f"Redis at {address.describe()}: ").rstrip(".") or f"silent for {timeout:g} s"


async def _cluster(address: RedisAddress, timeout: float, look: _Look, embedded: bool, append: str) -> list[Check]:
    failures: list[str] = []
    for place in address.seeds:
        seed = address.at(*place)
        try:
            found = await ask_once(seed, timeout, topology(place[0]))
            return await _nodes(address, found, look, embedded, append)
        except RedisError as error:
            return health.no_cluster(seed.describe(), str(error))
        except _FAILURES as error:
            failures.append(f"{spelled(*place)}: {_why(error, seed, timeout)}")
    return health.unusable(address.describe(), "; ".join(failures))


async def _nodes(address: RedisAddress, found: Topology, look: _Look, embedded: bool, append: str) -> list[Check]:
    master_of: dict[Place, Place | None] = dict.fromkeys(found.masters)
    master_of |= {replica: master for master, replicas in found.replicas.items() for replica in replicas}
    looks = await asyncio.gather(*(look(address.at(*place)) for place in master_of))
    nodes = [
        Node(spelled(*place), spelled(*master) if master else None, each)
        for (place, master), each in zip(master_of.items(), looks, strict=True)
    ]
    served = sum(found.of(slot) is not None for slot in range(SLOTS))
    return health.cluster_checks(nodes, served, address.describe(), embedded, append)
