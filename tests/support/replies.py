"""Replies of Redis made from Python values, for tests of what reads replies and needs no server."""

from __future__ import annotations

from collections.abc import Sequence


class Push(list[object]):
    """An out-of-band message of RESP3."""


def resp(value: object) -> bytes:
    """RESP of None, a bool, an int, bytes (a bulk string), a str (a simple string), an exception (an error), a list, a
    tuple, a dict (RESP3) or a `Push` (RESP3)."""
    match value:
        case None:
            return b"$-1\r\n"
        case bool():
            return b"#t\r\n" if value else b"#f\r\n"
        case int():
            return b":%d\r\n" % value
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(value), value)
        case str():
            return b"+%b\r\n" % value.encode()
        case Exception():
            return b"-%b\r\n" % str(value).encode()
        case Push():
            return _sequence(b">", value)
        case dict():
            return b"%%%d\r\n" % len(value) + b"".join(resp(each) for pair in value.items() for each in pair)
        case list() | tuple():
            return _sequence(b"*", value)
    raise TypeError(f"{type(value)} has no form in RESP")


def _sequence(kind: bytes, values: Sequence[object]) -> bytes:
    return b"%b%d\r\n" % (kind, len(values)) + b"".join(map(resp, values))
