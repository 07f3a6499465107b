"""Regular expressions that clients send: RE2's, as Kafka's brokers have them, so none takes exponential time.

One is compiled on the event loop, and thousands of Unicode classes take RE2 seconds: so its length is bounded, and what
it may take of memory.
"""

from __future__ import annotations

from collections.abc import Callable

import re2

_LENGTH_MAX = 4096  # characters; the worst of this length take 0.2 s

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False  # else RE2 writes to stderr what a client got wrong
_OPTIONS.max_mem = 1 << 20  # a class as \pL has some hundred instructions, of 16 bytes each


def matcher(regex: str) -> Callable[[str], bool]:
    """Whether it matches a text as a whole; of a regular expression with which `regex_error` finds nothing wrong."""
    pattern = re2.compile(regex, _OPTIONS)
    return lambda text: pattern.fullmatch(text) is not None


def regex_error(regex: str) -> str | None:
    """What is wrong with a regular expression in RE2's eyes; None where nothing is."""
    if len(regex) > _LENGTH_MAX:
        return f"it has more than {_LENGTH_MAX} characters"
    try:
        re2.compile(regex, _OPTIONS)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    return None
