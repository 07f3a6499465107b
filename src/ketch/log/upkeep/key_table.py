"""The newest offset of each key, in memory that does not grow: what a compaction knows of the records that it compares.

A key takes 24 bytes, 16 of them a hash that nobody can foresee, as in Kafka's SkimpyOffsetMap. The kernel walks the
records (`records.add_newest`, `records.still_newest`).
"""

from __future__ import annotations

import secrets

from ketch.records import DecodedBatch, add_newest, still_newest
from ketch.records.columns import row_timestamps

SLOT = 24  # bytes of a key
LOAD = 0.9  # how full the table may be (log.cleaner.io.buffer.load.factor)


class KeyTable:
    """The keys of the records that were added.

    Args:
        size: bytes.
    """

    def __init__(self, size: int) -> None:
        slots = max(2, size // SLOT)
        self._table = bytearray(slots * SLOT)
        self._most = max(1, int(slots * LOAD))
        self._secret = secrets.token_bytes(16)
        self.keys = 0

    @property
    def utilization(self) -> float:
        """Which part of it is used."""
        return self.keys / self._most

    def add(self, batch: DecodedBatch, count: int) -> int | None:
        """Takes the first `count` records of a batch into account; the offset of the first without room, or None."""
        room = self._most - self.keys
        taken, added = add_newest(self._table, self._secret, room, batch.records, count, batch.base_offset)
        self.keys += added
        if taken == count:
            return None
        return next(offset for index, (offset, _) in enumerate(row_timestamps(batch)) if index == taken)

    def retained(self, batch: DecodedBatch, below: int, tombstones_below: int) -> bytearray:
        """Of each record whether it stays: it lies at `below` or above, or it has a key and is the newest of that.

        Args:
            tombstones_below: tombstones below this offset go.
        """
        count, base = batch.record_count, batch.base_offset
        return still_newest(self._table, self._secret, batch.records, count, base, below, tombstones_below)
