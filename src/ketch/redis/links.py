"""Picks the asyncio driver that an address needs, so that nobody else names one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ketch.redis.cluster import Changes, ClusterLink
from ketch.redis.driver import Connect, Node, OwnedDriver
from ketch.redis.link import Link
from ketch.redis.url import RedisAddress


def links(address: RedisAddress, timeout: float) -> Connect:
    """What makes the drivers of an address: a `Link`, or a `ClusterLink` for a Redis Cluster."""
    changes = Changes()

    def connect(
        name: str,
        on_up: Callable[[Node], Awaitable[None]] | None = None,
        on_down: Callable[[], None] | None = None,
        on_push: Callable[[Any], None] | None = None,
    ) -> OwnedDriver:
        if address.kind == "cluster":
            return ClusterLink(name, address, timeout, on_up, on_down, on_push, changes)
        return Link(name, address, timeout, on_up, on_down, on_push)

    return connect
