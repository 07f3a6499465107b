"""Sizes and durations as a person writes them: 10mb, 7d, 1h30m. Pure functions on text and numbers."""

from __future__ import annotations

import re

_MILLISECONDS = {
    "w": 604_800_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1000,
    "ms": 1,
}
_BYTES = {"tb": 2**40, "gb": 2**30, "mb": 2**20, "kb": 2**10, "b": 1}  # as redis.conf counts them

_DURATION = re.compile(r"(?:\d+(?:ms|[wdhms]))+", re.IGNORECASE)
_PART = re.compile(r"(\d+)(ms|[wdhms])", re.IGNORECASE)
_SIZE = re.compile(r"(\d+)([tgmk]?b)", re.IGNORECASE)
_YEARS = 200 * 365 * _MILLISECONDS["d"]  # longer durations stand for "unlimited" and are shown as they are


def milliseconds(text: str) -> int | None:
    """Of a duration such as 7d or 1h30m; None where `text` is none."""
    if not _DURATION.fullmatch(text):
        return None
    return sum(int(number) * _MILLISECONDS[unit.lower()] for number, unit in _PART.findall(text))


def size(text: str) -> int | None:
    """Bytes of a size such as 10mb, where 1kb is 1024 bytes; None where `text` is none."""
    match = _SIZE.fullmatch(text)
    return int(match[1]) * _BYTES[match[2].lower()] if match else None


def duration(ms: int) -> str:
    """Exact, with the largest units first: 1d12h. Empty where the plain number says as much or more."""
    if not 1000 <= ms < _YEARS:
        return ""
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):  # not weeks: 14d is more usual than 2w
        number, ms = divmod(ms, _MILLISECONDS[unit])
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts)


def amount(number: int) -> str:
    """Of bytes, to one decimal: 1.5mb, 10mb, 512b."""
    for unit, length in _BYTES.items():
        if number >= length:
            return f"{number / length:.1f}".removesuffix(".0") + unit
    return f"{number}b"


def config_value(name: str, value: str) -> str:
    """A topic config's value in Kafka's own units; what is neither a size nor a duration stays as it is.

    Kafka ends the names of durations with .ms and those of sizes with .bytes.
    """
    number = milliseconds(value) if name.endswith(".ms") else size(value) if name.endswith(".bytes") else None
    return value if number is None else str(number)


def config_shown(name: str, value: str) -> str:
    """For a person: "7d (604800000)"."""
    if value == "-1" and "retention." in name:
        return "unlimited (-1)"
    if not value.isdecimal():
        return value
    shown = duration(int(value)) if name.endswith(".ms") else ""
    if name.endswith(".bytes") and 1024 <= int(value) < 2**50:
        shown = amount(int(value))
    return f"{shown} ({value})" if shown else value
