"""Responses of Kafka 0.7 as bytes, without I/O: length, error code, and what the kind of request adds.

PRODUCE and MULTIPRODUCE have none. A response to MULTIFETCH holds a whole response for each part.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ketch.legacy07.errors import ErrorCode

_HEAD = struct.Struct(">ih")  # length of what follows it, error code
HEAD_SIZE = _HEAD.size


def fetched(chunk: bytes, code: ErrorCode = ErrorCode.NONE) -> list[bytes]:
    """A chunk of the log, in pieces; it stands in no other buffer, for it may be large."""
    head = _HEAD.pack(2 + len(chunk), code)
    return [head, chunk] if chunk else [head]


def multifetched(parts: Sequence[list[bytes]]) -> list[bytes]:
    """The responses to the parts of a MULTIFETCH, in their order; the error codes are theirs."""
    pieces = [piece for part in parts for piece in part]
    return [_HEAD.pack(2 + sum(map(len, pieces)), ErrorCode.NONE), *pieces]


def offsets(positions: Sequence[int], code: ErrorCode = ErrorCode.NONE) -> list[bytes]:
    """Positions, the newest first; none beside an error."""
    return [_HEAD.pack(6 + 8 * len(positions), code), struct.pack(f">i{len(positions)}q", len(positions), *positions)]
