"""RESP, the protocol of Redis: commands as bytes, replies as Python objects.

hiredis packs and parses. The records' own replies stay bytes, see `ketch.records.scan_reply`.
"""

from __future__ import annotations

from typing import Any

import hiredis

from ketch.errors import RedisError, RightMissing, StorageUnavailable, WritesRefused

# Errors by which Redis says that it cannot serve now: loading, read-only, out of memory, busy with a script, ...
_UNAVAILABLE = ("LOADING", "BUSY", "MASTERDOWN", "NOAUTH", "CLUSTERDOWN", "TRYAGAIN")
# Those by which it says that it takes no writes. EXECABORT is a transaction's of which it refused a command.
_REFUSED = ("OOM", "EXECABORT", "MISCONF", "NOREPLICAS", "READONLY")


_FULL = "OOM command not allowed"


def pack(*args: bytes | str | int) -> bytes:
    """One command in RESP."""
    packed: bytes = hiredis.pack_command(args)  # type: ignore[arg-type]
    return packed


def parse(reply: bytes) -> Any:
    """A whole reply as Python objects, errors as `hiredis.ReplyError` values."""
    reader = hiredis.Reader()
    reader.feed(reply)
    return reader.gets()


def first_error(replies: bytes) -> bytes:
    """The first error among simple replies, with the end of its line; empty where there is none."""
    return next((line for line in replies.splitlines(keepends=True) if line.startswith(b"-")), b"")


def checked(reply: Any) -> Any:
    """The reply, unless it is an error.

    Raises:
        WritesRefused: Redis takes no writes now (out of memory, read-only, its disk or replicas fail).
        StorageUnavailable: Redis cannot serve now (loading, busy).
        RightMissing: this user may not.
        RedisError: any other error.
    """
    if isinstance(reply, hiredis.ReplyError):
        text = str(reply)
        word = text.partition(" ")[0]
        if word in _REFUSED or _FULL in text:  # a script of Redis 6 says it in other words before
            raise WritesRefused(f"Redis refuses: {text}")
        if word in _UNAVAILABLE:  # not BUSYGROUP, which says that a group exists
            raise StorageUnavailable(f"Redis refuses: {text}")
        raise RightMissing(text) if word == "NOPERM" else RedisError(text)
    return reply
