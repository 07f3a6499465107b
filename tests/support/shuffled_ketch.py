"""`ketch` whose broker asks Redis in shuffled rounds: python -m tests.support.shuffled_ketch SEED serve ...

See `tests.support.shuffled`. A command that touches a key in another slot than its own ends the process.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from ketch.broker import server
from ketch.cli.main import main
from ketch.redis.driver import Connect, OwnedDriver
from ketch.redis.links import links
from ketch.redis.url import RedisAddress
from tests.support.shuffled import Shuffled, seeded

_WRONG_SLOT = 70  # exit code


def _end(error: AssertionError) -> None:
    traceback.print_exception(error)
    sys.stderr.flush()
    os._exit(_WRONG_SLOT)


def shuffling(seed: int, end: Callable[[AssertionError], None] = _end) -> Callable[[RedisAddress, float], Connect]:
    """As `links`, of drivers that run everything shuffled."""

    def shuffled_links(address: RedisAddress, timeout: float) -> Connect:
        connect = links(address, timeout)

        def shuffled_link(name: str, *hooks: Any, **more: Any) -> OwnedDriver:
            return Shuffled(connect(name, *hooks, **more), seeded(seed, name), end)

        return shuffled_link

    return shuffled_links


if __name__ == "__main__":
    server.links = shuffling(int(sys.argv.pop(1)))
    main()
