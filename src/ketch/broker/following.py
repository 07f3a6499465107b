"""How a broker follows what lies in Redis and others change there: it reads it again and again.

It owns nothing: what was read is the caller's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ketch.errors import KetchError, StorageUnavailable

log = logging.getLogger(__name__)


async def follow(refresh: Callable[[], Awaitable[None]], interval: float, what: str, *, at_once: bool = False) -> None:
    """Reads it once in each interval, until cancelled. After an error, which is logged, it goes on.

    Args:
        refresh: reads it.
        interval: seconds.
        what: its name, for the log.
        at_once: whether it has not been read yet; else the first round comes after an interval.
    """
    while True:
        if not at_once:
            await asyncio.sleep(interval)
        at_once = False
        try:
            await refresh()
        except StorageUnavailable:
            pass  # the links say so themselves
        except KetchError as error:
            log.warning("%s: %s", what, error)
        except Exception:  # the next round must come all the same
            log.exception("%s", what)
