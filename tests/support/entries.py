"""The records in a stream's entries, whichever layout these have."""

from __future__ import annotations

import redis

from tests.support.kafka import split


def offset_of(entry_id: bytes, dense: bool = False, bits: int = 10) -> int:
    """The offset that an entry id stands for."""
    ms, seq = entry_id.split(b"-")
    return (int(ms) << bits) + int(seq) - dense


def stored(client: redis.Redis, stream: str, dense: bool = False) -> list[tuple[int, bytes]]:
    """Offset and value of every record, in the order of the entries."""
    found: list[tuple[int, bytes]] = []
    for entry_id, fields in client.xrange(stream):
        if b"control" in fields:
            continue  # a transaction's marker
        whole = split(fields[b"batch"])[0].records if b"batch" in fields else None
        values = [fields[b"value"]] if whole is None else [record.value for record in whole]
        first = offset_of(entry_id, dense) - len(values) + 1
        found += enumerate(values, first)
    return found
