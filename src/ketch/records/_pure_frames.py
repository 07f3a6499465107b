"""The framing of replies in plain Python, a part of :mod:`ketch.records._pure`."""

from __future__ import annotations

import re

from ketch.records.compression import BytesLike

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
LINE_MAX = 64 * 1024  # a line that is not whole is searched again with every read, so it has a bound
_SIZE_DIGITS = 10
_SIZE_LINE = re.compile(rb"(\d{1,10})\r\n")
DIGITS = frozenset(b"0123456789")


def take_size(data: BytesLike, pos: int, end: int) -> tuple[int, int] | None:
    """Where the line of an array or bulk string ends and its number, -1 for null; None when it is not whole yet."""
    line = _SIZE_LINE.match(data, pos, end)
    if line and (size := int(line[1])) <= _INT32_MAX:
        return line.end(), size
    return _take_odd_size(data, pos, end)


def _take_odd_size(data: BytesLike, pos: int, end: int) -> tuple[int, int] | None:
    """Null, not whole, or malformed."""
    null = pos < end and data[pos] == ord("-")
    start = pos = pos + null
    while pos < end and data[pos] in DIGITS and pos - start <= _SIZE_DIGITS:
        pos += 1
    digits = bytes(data[start:pos])
    size = int(digits or b"0")
    if size > _INT32_MAX or len(digits) > _SIZE_DIGITS or (null and digits not in (b"", b"1")):
        raise ValueError("malformed reply")
    if pos < end and (not digits or data[pos] != ord("\r")):
        raise ValueError("malformed reply")
    if end - pos < 2:
        return None
    if data[pos + 1] != ord("\n"):
        raise ValueError("malformed reply")
    return pos + 2, -1 if null else size


def _pass_line(data: BytesLike, pos: int, end: int) -> int | None:
    stop = min(end, pos + LINE_MAX)
    at = bytes(data[pos:stop]).find(b"\r\n")
    if at < 0 and stop < end:
        raise ValueError("malformed reply")
    return None if at < 0 else pos + at + 2


def _pass_token(data: BytesLike, pos: int, end: int) -> tuple[int, int] | None:
    """Where the token ends and how many values it opens; None when it is not whole yet."""
    kind = chr(data[pos])
    if kind in "+-:_#,(":
        line_end = _pass_line(data, pos + 1, end)
        return None if line_end is None else (line_end, 0)
    if kind not in "$=!*%~>":
        raise ValueError("malformed reply")
    taken = take_size(data, pos + 1, end)
    if taken is None or kind in "*%~>":
        return taken and (taken[0], max(taken[1], 0) * (2 if kind == "%" else 1))
    start, size = taken
    if size < 0:
        return start, 0
    if end - start < size + 2:
        return None
    if bytes(data[start + size : start + size + 2]) != b"\r\n":
        raise ValueError("malformed reply")
    return start + size + 2, 0


def scan_reply(buf: BytesLike, pos: int, end: int, pending: int) -> tuple[int, int]:
    if not 0 <= pos <= end <= len(buf) or pending < 0:
        raise ValueError("no part of the buffer")
    while pending > 0 and pos < end:
        token = _pass_token(buf, pos, end)
        if token is None:
            break
        pos, opened = token
        if pending > _INT64_MAX - opened:
            raise ValueError("malformed reply")
        pending += opened - 1
        if pos < end and buf[pos] == ord(">"):
            break
    return pos, pending
