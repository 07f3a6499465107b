"""SASL PLAIN's only message (RFC 4616), with Kafka's refusals (PlainSaslServer).

Pure. `scram` says whether a password is right.
"""

from __future__ import annotations

from typing import NamedTuple

from ketch.security.sasl import RefusedWithReason, check_authzid

WRONG = "Authentication failed: Invalid username or password"


class Login(NamedTuple):
    """Who wants to log in, for whom ("" for itself), and with which password."""

    authzid: str
    username: str
    password: str


def parse(token: bytes) -> Login:
    """Raises RefusedWithReason where it is no such message, or a part of it is missing."""
    parts = token.decode(errors="replace").split("\0", 3)
    if len(parts) != 3:
        raise RefusedWithReason(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
    login = Login(*parts)
    if not login.username:
        raise RefusedWithReason("Authentication failed: username not specified")
    if not login.password:
        raise RefusedWithReason("Authentication failed: password not specified")
    return login


def check(login: Login, known: bool) -> None:
    """Raises RefusedWithReason unless the password is known to be right and the user acts for itself."""
    if not known:
        raise RefusedWithReason(WRONG)
    check_authzid(login.authzid, login.username)
