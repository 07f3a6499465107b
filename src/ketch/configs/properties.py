"""Files of properties as Java reads them (java.util.Properties), which Kafka's tools take. Text in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterator

_COMMENT = ("#", "!")
_KEY = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def parse(text: str) -> dict[str, str]:
    """The properties; of a name that comes twice the last value."""
    found = {}
    for line in _lines(text):
        key = _KEY.match(line)
        assert key is not None  # it may match nothing, but it does match
        found[_unescaped(key[1])] = _unescaped(key[2])
    return found


def _lines(text: str) -> Iterator[str]:
    """Logical lines: one that ends with an odd number of backslashes goes on in the next."""
    whole = ""
    for line in text.splitlines():
        part = line.lstrip()
        if not whole and (not part or part.startswith(_COMMENT)):
            continue
        if (len(part) - len(part.rstrip("\\"))) % 2:
            whole += part[:-1]
            continue
        yield whole + part
        whole = ""
    if whole:
        yield whole


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else _LETTERS.get(found[2], found[2]), text)
