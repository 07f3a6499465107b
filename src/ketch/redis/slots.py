"""The slot of a key, as Redis Cluster reckons it.

A cluster has 16,384 slots, and a node of it has some of them. Keys in one slot can change together: in one script, one
MULTI to EXEC, one command of several keys. The slot is the CRC16 (XMODEM) of the key, or of its hash tag: what lies
between the first `{` and the next `}`, where there is anything. (Redis Cluster specification, "Hash tags".)
"""

from __future__ import annotations

from binascii import crc_hqx

SLOTS = 16_384


def slot(key: bytes) -> int:
    """The slot of a key, 0 to 16,383."""
    return crc_hqx(_hashed(key), 0) % SLOTS


def _hashed(key: bytes) -> bytes:
    """What of the key decides."""
    _, brace, rest = key.partition(b"{")
    tag, end, _ = rest.partition(b"}")
    return tag if brace and end and tag else key
