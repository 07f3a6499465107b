"""What the SASL mechanisms have in common: how an exchange fails, how names are escaped, and for whom a client acts.

An exchange fails in one of the two ways that Kafka has: with a message of its own for the client, or without. Pure.
"""

from __future__ import annotations

from ketch.errors import KetchError


class InvalidCredentials(KetchError):
    """Kafka's SaslException: the client is told no more than that its credentials are invalid. The message is
    for the log."""


class RefusedWithReason(KetchError):
    """A SaslAuthenticationException of Kafka: the client gets the message, which tells it nothing of who exists.

    Attributes:
        why: for the log.
    """

    def __init__(self, message: str, why: str = "") -> None:
        super().__init__(message)
        self.why = why or message.removeprefix("Authentication failed: ")


def unescaped(name: str) -> str:
    """The name behind a `saslname` (RFC 5802, section 5.1), in which a comma is =2C and an equals sign =3D."""
    return name.replace("=2C", ",").replace("=3D", "=")


def check_authzid(authzid: str, username: str) -> None:
    """Raises RefusedWithReason where a client wants to act for somebody else; "" stands for itself."""
    if authzid and authzid != username:
        raise RefusedWithReason(
            "Authentication failed: Client requested an authorization id that is different from username"
        )
