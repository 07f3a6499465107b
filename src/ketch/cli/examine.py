"""Looks once at a Redis, over a connection of its own on the event loop, for `ketch serve` before it starts and for
`ketch doctor`. The checks are in `views.health`.
"""

from __future__ import annotations

from ketch.errors import RedisError, StorageUnavailable
from ketch.redis.link import ask_once
from ketch.redis.url import RedisAddress
from ketch.views import health
from ketch.views.health import Check


async def examine(address: RedisAddress, timeout: float, embedded: bool = False, append: str = "auto") -> list[Check]:
    """All checks, worst cases included: never raises for what it finds.

    Args:
        timeout: s, for connecting, and again for all questions.
        embedded, append: see `health.checks`.
    """
    name = address.describe()
    try:
        facts = await ask_once(address, timeout, health.facts())
    except (StorageUnavailable, RedisError, TimeoutError) as error:
        why = str(error).removeprefix(f"Redis at {name}: ").rstrip(".")
        return health.unusable(name, why or f"silent for {timeout:g} s")
    return health.checks(facts, name, embedded, append)
