"""Regular expressions that clients send: RE2's, as Kafka's brokers have them, so none takes exponential time."""

from __future__ import annotations

from collections.abc import Callable

import re2

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False  # else RE2 writes to stderr what a client got wrong


def matcher(regex: str) -> Callable[[str], bool]:
    """Whether it matches a text as a whole; of a regular expression with which `regex_error` finds nothing wrong."""
    pattern = re2.compile(regex, _OPTIONS)
    return lambda text: pattern.fullmatch(text) is not None


def regex_error(regex: str) -> str | None:
    """What is wrong with a regular expression in RE2's eyes; None where nothing is."""
    try:
        re2.compile(regex, _OPTIONS)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    return None
