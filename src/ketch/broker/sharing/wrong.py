"""What makes a whole request of a share group's member wrong: its ids, and its session."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.errors import Refused, code_of
from ketch.broker.sharing.sessions import InvalidShareSessionEpoch, ShareSessionLimitReached, ShareSessionNotFound
from ketch.errors import KetchError

_ID_BYTES = 16

_CODES: dict[type[KetchError], ErrorCode] = {
    ShareSessionNotFound: ErrorCode.share_session_not_found,
    InvalidShareSessionEpoch: ErrorCode.invalid_share_session_epoch,
    ShareSessionLimitReached: ErrorCode.share_session_limit_reached,
}


def code_of_session(error: KetchError) -> ErrorCode:
    """The code of a request that is refused as a whole."""
    return _CODES.get(type(error)) or code_of(error)


def check_member(body: Any) -> None:
    """Raises Refused where a request names no group, or no member that a client can have made."""
    if not body.group_id:
        raise Refused(ErrorCode.invalid_request, "no group id")
    try:
        made = base64.urlsafe_b64decode(f"{body.member_id or ''}==")
    except (binascii.Error, ValueError):
        made = b""
    if len(made) != _ID_BYTES:
        raise Refused(ErrorCode.invalid_request, f"{body.member_id!r} is no member id")
