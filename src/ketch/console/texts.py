"""Bytes and numbers as text for people. Everything that was written by somebody else becomes printable here; HTML is
escaped where it is rendered.
"""

from __future__ import annotations

import json
import time
from typing import Literal

from ketch.store.stream.glances import Beginning

As = Literal["text", "json", "hex"]
_NONE = "\u2013"  # a dash
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_HEX_WIDTH = 16


def printable(text: str, lines: bool = False) -> str:
    """With \\xNN or \\uNNNN for what has no glyph of its own: control characters, and those that turn text around."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or (lines and c in "\n\t") else _escaped(c) for c in text)


def _escaped(c: str) -> str:
    code = ord(c)
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(c) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def text(data: bytes, lines: bool = False) -> str:
    """Bytes as UTF-8, each byte that is none as \\xNN."""
    return printable(data.decode(errors="backslashreplace"), lines)


def brief(cell: Beginning | None, most: int = 120) -> str:
    """A key or value in one line of a table."""
    if cell is None:
        return ""
    shown = text(cell.data)
    return shown if cell.whole and len(shown) <= most else shown[:most] + "…"


def as_json(data: bytes) -> str | None:
    """The same JSON with indentation; None where the bytes are none."""
    try:
        return printable(json.dumps(json.loads(data), indent=2, ensure_ascii=False), lines=True)
    except (ValueError, RecursionError):
        return None


def as_hex(data: bytes, most: int = 16_384) -> str:
    """Offset, bytes and characters, as hexdump -C has them."""
    lines = []
    for at in range(0, min(len(data), most), _HEX_WIDTH):
        row = data[at : at + _HEX_WIDTH]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:08x}  {row.hex(' '):<47}  {shown}")
    return "\n".join(lines)


def number(value: float | None) -> str:
    """With commas between thousands; a dash for None."""
    if value is None:
        return _NONE
    return f"{value:,.0f}" if isinstance(value, int) or value >= 100 or value == 0 else f"{value:,.1f}"


def size(value: float | None) -> str:
    """Bytes in the unit that needs few digits; a dash for None."""
    if value is None:
        return _NONE
    for unit in _UNITS:
        if abs(value) < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def duration(seconds: float | None) -> str:
    """About how long, in one or two units; a dash for None."""
    if seconds is None:
        return _NONE
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    for unit, of, below in (("min", 60, 3600), ("h", 3600, 86400), ("d", 86400, 1e18)):
        if seconds < below:
            return f"{seconds / of:.0f} {unit}" if seconds >= 10 * of else f"{seconds / of:.1f} {unit}"
    raise AssertionError(seconds)


def when(ms: int) -> str:
    """A time in UTC, as ISO 8601; a dash for what is none."""
    if ms < 0 or ms > 253_402_300_799_999:
        return _NONE if ms < 0 else str(ms)
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(ms / 1000)) + f".{ms % 1000:03d}Z"


def ago(ms: int) -> str:
    """How long ago a time was, ms since the epoch; a dash for 0."""
    return _NONE if ms <= 0 else duration(max(0.0, time.time() - ms / 1000)) + " ago"
