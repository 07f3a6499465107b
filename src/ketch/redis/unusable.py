"""Why Redis cannot be used, as a phrase for a person: "Connection refused". No I/O.

Where a URL does not fit a server, Redis, the system and OpenSSL each have errors of their own for it. Some cases have
none: a port with TLS closes a connection that does not begin with TLS, and a port without TLS takes the begin of TLS
for that of a command and waits for its end.
"""

from __future__ import annotations

import ssl

from ketch.errors import StorageUnavailable, reason
from ketch.redis.url import RedisAddress

_NO_PASSWORD = ("NOAUTH", "Authentication required", "client already authenticated")
_WRONG_PASSWORD = ("WRONGPASS", "AUTH called", "AUTH <password>", "invalid username-password")

LOST = "the connection to Redis was lost"
_SILENT = "no answer in time"


def why_unusable(error: BaseException, address: RedisAddress | None = None) -> str:
    """The phrase.

    Args:
        error: of the system or of a connection, or Redis's own answer.
        address: where a connection was being set up.
    """
    text = str(error)
    password, access = "redis://:PASSWORD@HOST:PORT", "user and password"
    if address is not None and address.of_sentinel:
        password, access = "?sentinel_password=PASSWORD", "sentinel_username and sentinel_password"
    if any(word in text for word in _NO_PASSWORD):
        return f"it wants a password, which belongs into the URL: {password}"
    if any(word in text for word in _WRONG_PASSWORD):
        return f"it does not accept the {access} of the URL"
    cause = error if isinstance(error, OSError) else error.__context__  # a connection's error: the system's says more
    if address is not None and (hint := _of_set_up(error, cause, address)):
        return hint
    if isinstance(cause, TimeoutError) and not cause.errno:  # of Python, which says "timed out" or nothing
        return _SILENT
    if isinstance(cause, OSError):
        return reason(cause).rstrip(".")
    return text.rstrip(".") or _SILENT


def _of_set_up(error: BaseException, cause: BaseException | None, address: RedisAddress) -> str:
    """What it means that a connection ended while it was being set up; empty where the error itself says it."""
    if address.path is not None:
        return ""
    closed = (
        (isinstance(cause, ConnectionError) and not isinstance(cause, ConnectionRefusedError))
        or isinstance(cause, ssl.SSLEOFError)
        or (isinstance(error, StorageUnavailable) and LOST in str(error))
    )
    if address.ssl is None:
        return "it closed the connection at once, as a port that wants TLS does (rediss://)" if closed else ""
    if closed or "ALERT" in (getattr(cause, "reason", None) or ""):
        return "it closed the connection at once, as it does without a client certificate that it accepts"
    return f"{_SILENT}, as from a port without TLS" if isinstance(error, TimeoutError) else ""
