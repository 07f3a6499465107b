"""The bounds on responses over all connections: how much a fetch may give, and how many fetches read at a time.

It owns the count of response bytes that are being made or that peers do not take. Connections count what lies in their
buffers, fetches what they are about to read. `connections.budget` bounds requests.
"""

from __future__ import annotations

import asyncio

_UNSENT_MAX = 256 << 20  # bytes
_LEAST_FETCH = 64 << 10  # bytes that a fetch may always have
READS = 8  # fetches that read records at a time; Redis answers one after the other anyway
_COLD_READS = 4  # the same, of those that read the archive: the tail's do not wait for them


class ResponseRoom:
    """What responses may take of the memory.

    Attributes:
        reading, reading_cold: a fetch that reads records holds one of them, the second if any is in the archive.
    """

    def __init__(self) -> None:
        self._unsent = 0
        self.reading = asyncio.Semaphore(READS)
        self.reading_cold = asyncio.Semaphore(_COLD_READS)

    def count(self, change: int) -> None:
        """So many bytes more are being made or not taken; fewer where it is negative."""
        self._unsent += change

    def of_fetch(self, most: int) -> int:
        """Bytes that a fetch may give now: the less, the more lie here that others do not take.

        Args:
            most: as the setting `fetch_max_bytes` has it.
        """
        return min(most, max(_LEAST_FETCH, (_UNSENT_MAX - self._unsent) // 4))
